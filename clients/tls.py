"""A server that speaks TLS, with an authority of its own that clients are told to trust."""

from certificates import issue
from harness import server as harness


class Server(harness.Server):
    """A server whose folder holds its certificates too."""

    def __init__(self, folder):
        folder.mkdir(parents=True)
        authority, certificate, key = issue(folder)
        super().__init__(folder, {"MARTLET_S3_TLS_CERTIFICATE": str(certificate), "MARTLET_S3_TLS_KEY": str(key)})
        # OpenSSL, Python and most of what is written in Rust know the first name, AWS's tools the second.
        self.trusted = {"SSL_CERT_FILE": str(authority), "AWS_CA_BUNDLE": str(authority)}

    @property
    def endpoint(self):
        return f"https://{self.host}"
