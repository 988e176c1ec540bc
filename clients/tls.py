"""A server that speaks TLS, with an authority of its own that clients are told to trust."""

import subprocess

from harness import server as harness

NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"


class Server(harness.Server):
    """Its folder holds the papers too."""

    def __init__(self, folder):
        folder.mkdir(parents=True)
        authority, certificate, key = issue(folder)
        super().__init__(folder, {"MARTLET_S3_TLS_CERTIFICATE": str(certificate), "MARTLET_S3_TLS_KEY": str(key)})
        # OpenSSL, Python and most of what is written in Rust know the first name, AWS's tools the second.
        self.trusted = {"SSL_CERT_FILE": str(authority), "AWS_CA_BUNDLE": str(authority)}

    @property
    def endpoint(self):
        return f"https://{self.host}"


def issue(folder):
    """The files of an authority's certificate, of one that it issued, and of that one's key."""
    authority, root_key = folder / "authority.pem", folder / "authority.key"
    certificate, key, wish, names = (folder / name for name in ("cert.pem", "cert.key", "cert.csr", "names"))
    names.write_text(f"{NAMES}\nbasicConstraints=CA:FALSE\n")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *new, "-keyout", root_key, "-out", authority, "-days", "2", "-subj", "/CN=authority")
    openssl("req", *new, "-keyout", key, "-out", wish, "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", wish, "-CA", authority, "-CAkey", root_key, "-CAcreateserial", "-days", "2",
            "-extfile", names, "-out", certificate)
    return authority, certificate, key


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)
