// Rewrap of the data keys of a bucket's encrypted objects: page by page, from this page of the browser.
import { useEffect, useRef, useState } from "preact/hooks";
import { change } from "../api";
import * as f from "../format";
import type { Schemas } from "../session";
import { Card, Failure, Field } from "../ui/parts";
import { parseCount } from "../units";

type Line = Schemas["RewrapLine"];

function sum(before: Line | undefined, page: Line): Line {
  if (!before) return page;
  return { ...page, seen: before.seen + page.seen, rewrapped: before.rewrapped + page.rewrapped, failed: before.failed + page.failed, failure: page.failure ?? before.failure ?? null };
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export function Rewrap({ bucket }: { bucket: string }) {
  const [rate, setRate] = useState("");
  const [line, setLine] = useState<Line>();
  const [running, setRunning] = useState(false);
  const [error, setError] = useState("");
  const stop = useRef(false);
  // Another page ends the work after the request that is under way.
  useEffect(() => () => { stop.current = true; }, []);
  const run = async (event: Event) => {
    event.preventDefault();
    setError("");
    stop.current = false;
    setRunning(true);
    // A run that was stopped goes on where it was.
    let all = line?.after_key ? line : undefined;
    try {
      const perSecond = rate.trim() === "" ? 0 : parseCount(rate);
      do {
        const began = Date.now();
        const page = await change<Line>("PUT", "/admin/v1/bucket/rewrap", { bucket, after_key: all?.after_key, after_version: all?.after_version });
        all = sum(all, page);
        setLine(all);
        if (perSecond > 0) await pause(Math.max(0, (page.seen / perSecond) * 1000 - (Date.now() - began)));
      } while (all.after_key && !stop.current);
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setRunning(false);
  };
  return (
    <Card title="Rewrap" note="wraps the data keys of encrypted objects with the first master key" wide>
      <p>Needed after a change of the master key, once every proxy lists the new key before the old one. It runs while this page is open, moves no data, and skips finished versions.</p>
      <form class="row end" onSubmit={(event) => void run(event)}>
        <Field label="Versions per second" value={rate} on={setRate} hint="Empty: unlimited." />
        {running ? <button type="button" onClick={() => (stop.current = true)}>Stop</button> : <button>{line?.after_key ? "Go on" : "Rewrap the keys"}</button>}
      </form>
      {error && <Failure text={error} />}
      {line && <p role="status">{f.count(line.rewrapped)} of {f.count(line.seen)} versions rewrapped{running ? " so far" : line.after_key ? ", stopped before the end" : ""}.</p>}
      {line && line.failed > 0 && <p class="reason">{f.count(line.failed)} versions still need the old master key. {line.failure}</p>}
      {line && line.uploads > 0 && <p class="reason">{f.count(line.uploads)} earlier uploads are open and need the old master key: rewrap again after they end.</p>}
    </Card>
  );
}
