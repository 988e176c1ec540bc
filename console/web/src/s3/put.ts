// Sends a body with its progress, which fetch doesn't report.
import { Refusal } from "../api";
import { CSRF, session } from "../session";
import { path, refusal, type Query, type Target } from "./client";

/** Failure of the network, after which a request may be repeated. */
export class Cut extends Refusal {
  constructor() {
    super("the connection was cut");
  }
}

export function put(target: Target, query: Query, body: Blob, headers: Record<string, string>, progress: (sent: number) => void, signal: AbortSignal): Promise<Headers> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const abort = () => request.abort();
    const settle = (act: () => void) => {
      signal.removeEventListener("abort", abort);
      act();
    };
    request.open("PUT", path(target, query));
    request.setRequestHeader(CSRF, session.value?.csrf ?? "");
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => progress(event.loaded);
    request.onerror = () => settle(() => reject(new Cut()));
    request.onabort = () => settle(() => reject(new DOMException("cancelled", "AbortError")));
    request.onload = () => {
      const { status } = request;
      if (status >= 200 && status < 300) {
        const lines = request.getAllResponseHeaders().trim().split("\r\n").map((line) => line.split(": "));
        settle(() => resolve(new Headers(lines.map(([name, ...value]): [string, string] => [name ?? "", value.join(": ")]))));
        return;
      }
      if (status >= 500) return settle(() => reject(new Cut()));
      const words = refusal(status, request.getResponseHeader("content-type"), () => Promise.resolve(request.responseText));
      settle(() => void words.then(reject, reject));
    };
    signal.addEventListener("abort", abort);
    if (signal.aborted) return settle(() => reject(new DOMException("cancelled", "AbortError")));
    request.send(body);
  });
}
