// Uploads of a bucket that nothing completes: resumed with their file, or removed.
import { useRef, useState } from "preact/hooks";
import { useLive } from "../api";
import * as f from "../format";
import { uploads, type Unfinished } from "../s3/listing";
import { abandon, add, transfers } from "../s3/upload";
import { Ask, Card, Table } from "../ui/parts";

export function UnfinishedUploads({ bucket, prefix }: { bucket: string; prefix: string }) {
  const live = useLive(() => uploads(bucket, prefix), 0, [bucket, prefix]);
  const [gone, setGone] = useState<Unfinished>();
  const [picked, setPicked] = useState<{ of: Unfinished; file: File }>();
  const [replace, setReplace] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const resumed = useRef<Unfinished>();
  // Uploads of this page are shown with their progress.
  const own = new Set(transfers.value.map(({ upload }) => upload));
  const items = (live.value.value?.items ?? []).filter(({ id }) => !own.has(id));
  if (items.length === 0) return null;
  const remove = async () => {
    if (gone) await abandon(bucket, gone.key, gone.id);
    await live.reload();
  };
  const send = async () => {
    if (picked) add({ bucket, key: picked.of.key, file: picked.file, replace, upload: picked.of.id });
  };
  return (
    <Card title="Unfinished uploads" note="their parts use space until they are completed or removed" wide>
      <Table label="Unfinished uploads" heads={["Key", "Begun", { right: "Change" }]}>
        {items.map((one) => (
          <tr>
            <th scope="row">{one.key}</th>
            <td>{f.date(Date.parse(one.began))}</td>
            <td class="right">
              <button
                aria-label={`Resume with its file: ${one.key}`}
                onClick={() => {
                  resumed.current = one;
                  input.current?.click();
                }}
              >
                Resume with its file
              </button>{" "}
              <button aria-label={`Remove the upload of ${one.key}`} onClick={() => setGone(one)}>Remove</button>
            </td>
          </tr>
        ))}
      </Table>
      {live.value.value?.more && <p class="note">There are more than a thousand.</p>}
      <input
        ref={input}
        class="hidden"
        type="file"
        tabIndex={-1}
        aria-label="File of the unfinished upload"
        onChange={(event) => {
          const [file, of] = [event.currentTarget.files?.[0], resumed.current];
          if (file && of) setPicked({ of, file });
          event.currentTarget.value = "";
        }}
      />
      {picked && (
        <Ask title="Resume the upload" verb="Resume" run={send} close={() => setPicked(undefined)}>
          <p>
            <code>{picked.of.key}</code> gets the bytes of <code>{picked.file.name}</code>, {f.bytes(picked.file.size)}. Parts of other bytes are sent again.
          </p>
          <label><input type="checkbox" checked={replace} onChange={(event) => setReplace(event.currentTarget.checked)} /> Replace an object of this key</label>
        </Ask>
      )}
      {gone && (
        <Ask title={`Remove the upload of ${gone.key}`} verb="Remove" danger run={remove} close={() => setGone(undefined)}>
          <p>Its parts are deleted. A client that still sends it fails.</p>
        </Ask>
      )}
    </Card>
  );
}
