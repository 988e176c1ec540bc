// Card that makes a backup and saves it.
import { useRef, useState } from "preact/hooks";
import * as f from "../format";
import { Card, Failure, Meter } from "../ui/parts";
import { save } from "../ui/save";
import { create, type Step } from "./create";
import type { Counts } from "./lines";
import { SecretFields, useSecret } from "./secret-form";

export const sentence = (counts: Counts): string => Object.entries(counts).map(([kind, count]) => `${f.count(count)} of kind ${kind}`).join(", ") || "nothing yet";

export function MakeBackup() {
  const secret = useSecret(true);
  const [included, setIncluded] = useState<File[]>([]);
  const [running, setRunning] = useState<{ counts: Counts; step?: Step | undefined }>();
  const [made, setMade] = useState("");
  const [error, setError] = useState("");
  const stop = useRef(false);
  const make = async (event: Event) => {
    event.preventDefault();
    setError("");
    setMade("");
    stop.current = false;
    setRunning({ counts: {} });
    try {
      const backup = await create(await secret.read(), included, (counts, step) => {
        setRunning({ counts, step });
        return stop.current;
      });
      const name = `martlet-${new Date(backup.made_ms).toISOString().slice(0, 10)}.backup`;
      save(backup.file, name);
      setMade(`${name}, ${f.bytes(backup.file.size)}: ${sentence(backup.counts)}. Keep the master keys elsewhere.`);
      secret.forget();
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setRunning(undefined);
  };
  return (
    <Card title="Make a backup" wide>
      <p>Tenants, users, roles, access keys, admin keys, the settings of all buckets, and the rings in use. No objects, and no master key, cluster key or root secret: keep copies of those files elsewhere.</p>
      <form class="change" onSubmit={(event) => void make(event)}>
        <div class="filters">
          <SecretFields of="The backup" secret={secret} />
          <div class="field">
            <label for="included">Files to add</label>
            <input id="included" type="file" multiple onChange={(event) => setIncluded([...(event.currentTarget.files ?? [])])} />
            <small>Such as <code>index.builder</code>; 16 MiB each at most.</small>
          </div>
        </div>
        {error && <Failure text={error} />}
        <div class="row">
          <button class="primary" disabled={running !== undefined}>Make the backup</button>
          {running && <button type="button" onClick={() => (stop.current = true)}>Stop</button>}
          {running && <span class="note">{sentence(running.counts)}</span>}
        </div>
        {running?.step && <Progress step={running.step} />}
      </form>
      <p role="status">{made && `Saved ${made}`}</p>
    </Card>
  );
}

/** Records of the kind under way, with their share and the time left where the kind has an estimate. */
function Progress({ step: { kind, number, kinds, records, total, began_ms } }: { step: Step }) {
  const share = total ? records / total : undefined;
  const left = share ? ((Date.now() - began_ms) / 1000) * (1 / share - 1) : undefined;
  return (
    <div class="change">
      {share !== undefined && <Meter share={share} label={`${f.percent(share)} of the records of kind ${kind}`} />}
      <p class="note">
        Kind {number} of {kinds}, {kind}: {f.count(records)}{total ? ` of about ${f.count(total)}` : ""} records{left !== undefined && share !== 1 ? `, ${f.span(left)} left` : ""}
      </p>
    </div>
  );
}
