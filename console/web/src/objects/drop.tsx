// Files from the desk: dropped, or chosen.
import { useRef, useState } from "preact/hooks";
import { add } from "../s3/upload";

/** Files that one drop may have. */
const FILES_MAX = 1000;

export function Drop({ bucket, prefix }: { bucket: string; prefix: string }) {
  const input = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const [replace, setReplace] = useState(false);
  const [note, setNote] = useState("");
  const take = (files: FileList | null | undefined) => {
    const all = [...(files ?? [])];
    setNote(all.length > FILES_MAX ? `Only the first ${FILES_MAX} of ${all.length} files are sent: use another client for more.` : "");
    for (const file of all.slice(0, FILES_MAX)) add({ bucket, key: `${prefix}${file.name}`, file, replace });
  };
  return (
    <section
      class={over ? "drop over" : "drop"}
      aria-label="Upload"
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        take(event.dataTransfer?.files);
      }}
    >
      <span>Drop files here, for <code>{bucket}/{prefix}</code></span>
      <button onClick={() => input.current?.click()}>Choose files</button>
      <label><input type="checkbox" checked={replace} onChange={(event) => setReplace(event.currentTarget.checked)} /> Replace objects of the same name</label>
      <input
        ref={input}
        class="hidden"
        type="file"
        multiple
        tabIndex={-1}
        aria-label="Files to upload"
        onChange={(event) => {
          take(event.currentTarget.files);
          event.currentTarget.value = "";
        }}
      />
      {note && <span role="status">{note}</span>}
    </section>
  );
}
