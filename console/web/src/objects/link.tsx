// Presigned links, which the server makes: the secret is not in the browser.
import { useId, useState } from "preact/hooks";
import { Refusal } from "../api";
import { CSRF, farewell, sentence, session } from "../session";
import * as f from "../format";
import { useDialog } from "../ui/dialog";
import { Copy, Failure, Field, Select } from "../ui/parts";

const SPANS: Record<string, number> = { "15 minutes": 900, "1 hour": 3600, "12 hours": 43_200, "1 day": 86_400, "3 days": 259_200, "7 days": 604_800 };
const METHODS: Record<string, string> = { "Download (GET)": "GET", "Upload (PUT)": "PUT" };

interface Link {
  url: string;
  expires_ms: number;
}

async function make(body: Record<string, unknown>): Promise<Link> {
  const headers = { "content-type": "application/json", [CSRF]: session.value?.csrf ?? "" };
  let reply: Response;
  try {
    reply = await fetch("/links", { method: "POST", headers, body: JSON.stringify(body) });
  } catch {
    throw new Refusal("the server does not answer: try again");
  }
  if (reply.status === 401) {
    farewell.value = "The session is over. Sign in again.";
    session.value = null;
  }
  if (!reply.ok) throw new Refusal(await sentence(reply));
  return (await reply.json()) as Link;
}

export function LinkDialog({ bucket, name, version, close }: { bucket: string; name: string; version: string | undefined; close: () => void }) {
  const dialog = useDialog();
  const title = useId();
  const [span, setSpan] = useState("1 hour");
  const [method, setMethod] = useState("Download (GET)");
  const [endpoint, setEndpoint] = useState(session.value?.s3?.endpoint ?? "");
  const [link, setLink] = useState<Link>();
  const [error, setError] = useState("");
  const dotted = name.split("/").some((part) => part === "." || part === "..");
  const submit = async (event: Event) => {
    event.preventDefault();
    setError("");
    try {
      setLink(await make({ bucket, key: name, version_id: METHODS[method] === "GET" ? version : undefined, method: METHODS[method], expires_s: SPANS[span], endpoint }));
    } catch (thrown) {
      setLink(undefined);
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
  };
  return (
    <dialog ref={dialog} aria-labelledby={title} onClose={close}>
      <form onSubmit={(event) => void submit(event)}>
        <h2 id={title}>Link to {name.split("/").pop() || name}</h2>
        <p class="quiet">The link needs no login until it expires. It does what your key may do at that time.</p>
        {dotted && <p class="reason">Browsers resolve the part “.” or “..” of this key, so the link works in other clients alone (curl --path-as-is).</p>}
        <Select label="For" value={method} options={Object.keys(METHODS)} on={setMethod} />
        <Select label="Valid for" value={span} options={Object.keys(SPANS)} on={setSpan} />
        <Field label="Endpoint" value={endpoint} on={setEndpoint} hint="S3 address as the link's users reach it." required />
        {error && <Failure text={error} />}
        {link && (
          <>
            <Copy label="Link" text={link.url} />
            <p role="status">Valid until {f.exact(link.expires_ms)}.</p>
          </>
        )}
        <footer>
          <button type="button" onClick={() => dialog.current?.close()}>Close</button>
          <button class="primary">Make the link</button>
        </footer>
      </form>
    </dialog>
  );
}
