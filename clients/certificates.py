"""Certificates for tests and benchmarks of TLS: an authority of its own, and one certificate from it."""

import subprocess

NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"


def issue(folder, alternatives=NAMES):
    """The files of an authority's certificate, of one that it issued, and of that one's key."""
    authority, root_key = folder / "authority.pem", folder / "authority.key"
    certificate, key, wish, names = (folder / name for name in ("cert.pem", "cert.key", "cert.csr", "names"))
    names.write_text(f"{alternatives}\nbasicConstraints=CA:FALSE\n")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *new, "-keyout", root_key, "-out", authority, "-days", "2", "-subj", "/CN=authority")
    openssl("req", *new, "-keyout", key, "-out", wish, "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", wish, "-CA", authority, "-CAkey", root_key, "-CAcreateserial", "-days", "2",
            "-extfile", names, "-out", certificate)
    return authority, certificate, key


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)
