// Setting of a bucket that is a JSON document: shown, changed in the editor of documents, and removed.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Refusal, useLive } from "../api";
import { send, S3Refusal, storedDocument } from "../s3/client";
import { DocumentEditor, pretty, type Adding } from "../ui/document";
import { Ask, Card, Loaded } from "../ui/parts";

interface Props {
  bucket: string;
  title: string;
  /** Query key of the requests. */
  query: string;
  /** S3's code where none is set. */
  missing: string;
  template: string;
  note: string;
  /** Sentence of the dialog that removes the document. */
  lost: string;
  form?: (props: Adding) => ComponentChildren;
  /** Content above the document. */
  children?: ComponentChildren;
  changed?: () => Promise<void>;
}

/** S3's sentence without its code: places of faults are found by its words. */
function words(thrown: unknown): unknown {
  if (!(thrown instanceof S3Refusal)) return thrown;
  return new Refusal(thrown.message.replace(/ \(\w+\)$/, ""));
}

export function JsonDocument({ bucket, title, query, missing, template, note, lost, form, children, changed }: Props) {
  const load = () => storedDocument(bucket, query, missing);
  const live = useLive(load, 0, []);
  const [editing, setEditing] = useState(false);
  const [removing, setRemoving] = useState(false);
  const save = async (body: string) => {
    try {
      await send("PUT", { bucket }, { query: { [query]: "" }, body, headers: { "content-type": "application/json" } });
    } catch (thrown) {
      throw words(thrown);
    }
    await live.saved(body);
    await changed?.();
  };
  const remove = async () => {
    await send("DELETE", { bucket }, { query: { [query]: "" } });
    await live.saved("");
    await changed?.();
  };
  return (
    <Card title={title} note={note} wide>
      {children}
      <Loaded live={live}>
        {(document) =>
          editing ? (
            <DocumentEditor label={`Document of ${title}`} id={`${query} ${bucket}`} stored={document} template={template} current={load} save={save} close={() => setEditing(false)} {...(form && { form })} />
          ) : (
            <>
              {document ? <pre class="content" tabIndex={0} aria-label={`${title} of ${bucket}`}>{pretty(document)}</pre> : <p class="quiet">None is set.</p>}
              <div class="row">
                <button onClick={() => setEditing(true)} aria-label={`${document ? "Change" : "Set"} ${title}`}>{document ? "Change" : "Set"}</button>
                {document && <button onClick={() => setRemoving(true)} aria-label={`Remove ${title}`}>Remove</button>}
              </div>
            </>
          )
        }
      </Loaded>
      {removing && (
        <Ask title={`Remove ${title} of ${bucket}`} verb="Remove" danger run={remove} close={() => setRemoving(false)}>
          <p>{lost}</p>
        </Ask>
      )}
    </Card>
  );
}
