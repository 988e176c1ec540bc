// A wire between browser and console that can be cut: a TCP proxy of this process.
import { connect, createServer } from "node:net";

export async function wire(target) {
  const { hostname, port } = new URL(target);
  const open = new Set();
  let left = Infinity;
  let isCut = false;
  const server = createServer((client) => {
    if (isCut) return client.destroy();
    const upstream = connect(Number(port), hostname);
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        open.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.on("data", (bytes) => {
      left -= bytes.length;
      if (left < 0) cut();
      else upstream.write(bytes);
    });
    upstream.pipe(client);
  });
  function cut() {
    isCut = true;
    for (const socket of open) socket.destroy();
  }
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    /** Cuts all connections after so many more bytes of the browser. */
    cutAfter: (bytes) => (left = bytes),
    mend: () => {
      left = Infinity;
      isCut = false;
    },
    end: () => {
      cut();
      server.close();
    },
  };
}
