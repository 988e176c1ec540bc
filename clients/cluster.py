"""A cluster in the place of the one server: clients talk to the first of its proxies."""

from harness import cluster as harness


class Server(harness.Cluster):
    """Started, asked and stopped as a server is."""

    @property
    def host(self):
        return f"127.0.0.1:{self.proxies[0][0]}"

    @property
    def endpoint(self):
        return f"http://{self.host}"

    def start(self):
        self.folder.mkdir(parents=True)
        return super().start()

    def stop(self):
        """SIGTERM, and the exit code."""
        super().stop()
        return self.process.returncode

    def kill(self):
        if self.process:
            super().stop()

    def log(self):
        """What all processes of it wrote, the end of each."""
        logs = sorted(path for path in self.folder.rglob("log") if path.is_file())
        return "\n".join(f"{path.parent.name}:\n{path.read_text(errors='replace')[-2000:]}" for path in logs)

    def complaints(self):
        """None: on two cores a node may well miss a deadline of another, which says so."""
        return []
