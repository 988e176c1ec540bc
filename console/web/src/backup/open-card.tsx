// Card that opens a backup: shows and checks its contents, compares it with the cluster, and restores what differs.
import { useEffect, useRef, useState } from "preact/hooks";
import * as f from "../format";
import { may } from "../session";
import { Ask, Badge, Card, Check, Failure, Meter, Table } from "../ui/parts";
import { Slices } from "../ui/pager";
import { save } from "../ui/save";
import { fromHex } from "./bytes";
import { lines, type FileLine } from "./lines";
import { isWritten, plan, restore, type Example, type OpenBackup, type Outcome, type Plan, type Progress, type Scope } from "./plan";
import { openHead, readHead } from "./sealed";
import { SecretFields, useSecret } from "./secret-form";

/** Pass over the file that is under way. */
interface Pass {
  name: string;
  began: number;
  bytes: number;
  all: number;
}

/** Runs one pass over a file at a time, with its progress, its failure, and a way to stop it. */
function usePass() {
  const [pass, setPass] = useState<Pass>();
  const [error, setError] = useState("");
  const stop = useRef(false);
  useEffect(() => () => { stop.current = true; }, []);
  const run = async (name: string, file: File, work: (progress: Progress) => Promise<void>) => {
    stop.current = false;
    setError("");
    const begun = { name, began: Date.now(), bytes: 0, all: file.size };
    setPass(begun);
    try {
      await work((bytes) => {
        setPass({ ...begun, bytes: Math.min(bytes, file.size) });
        return stop.current;
      });
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown.message : String(thrown));
    }
    setPass(undefined);
  };
  return { pass, error, run, stop: () => (stop.current = true) };
}

export function OpenCard() {
  const secret = useSecret(false);
  const [file, setFile] = useState<File>();
  const [backup, setBackup] = useState<OpenBackup>();
  const passes = usePass();
  const show = async (event: Event) => {
    event.preventDefault();
    if (!file) return;
    setBackup(undefined);
    await passes.run("Checking the file", file, async (progress) => {
      const head = await readHead(file);
      const opened: OpenBackup = { file, head, key: await openHead(head, await secret.read()), counts: {}, files: [] };
      for await (const line of lines(file, head, opened.key, (bytes) => void progress(bytes))) {
        const kind = "record" in line ? line.record.kind : "file";
        opened.counts[kind] = (opened.counts[kind] ?? 0) + 1;
        if ("file" in line) opened.files.push(line.file);
      }
      secret.forget();
      setBackup(opened);
    });
  };
  return (
    <Card title="Open a backup" wide>
      <p class="quiet">The file is read in this page. Its contents are checked to their end, and nothing is changed.</p>
      <form class="change" onSubmit={(event) => void show(event)}>
        <div class="filters">
          <div class="field">
            <label for="backup-file">File of the backup</label>
            <input id="backup-file" type="file" required onChange={(event) => setFile(event.currentTarget.files?.[0])} />
          </div>
          <SecretFields of="This file" secret={secret} />
        </div>
        <div class="row"><button class="primary" disabled={passes.pass !== undefined}>Show the contents</button></div>
      </form>
      {passes.error && <Failure text={passes.error} />}
      {passes.pass && <PassMeter pass={passes.pass} stop={passes.stop} />}
      {backup && <Contents backup={backup} />}
      {backup && <Comparison key={backup.head.header.check} backup={backup} />}
    </Card>
  );
}

function PassMeter({ pass, stop }: { pass: Pass; stop: () => void }) {
  const share = pass.bytes / Math.max(1, pass.all);
  const left = share > 0 ? ((Date.now() - pass.began) / 1000) * (1 / share - 1) : undefined;
  return (
    <div class="change">
      <Meter share={share} label={`${f.percent(share)} of the file`} />
      <div class="row">
        <span class="note">{pass.name}: {f.percent(share)}{left !== undefined && share < 1 ? `, ${f.span(left)} left` : ""}</span>
        <button type="button" onClick={stop}>Stop</button>
      </div>
    </div>
  );
}

function Contents({ backup }: { backup: OpenBackup }) {
  const { header } = backup.head;
  return (
    <>
      <p class="verdict"><Badge tone="good">The backup is whole</Badge> <span class="note">of {f.date(header.made_ms)} by Martlet {header.martlet}, sealed by {header.key === "key-file" ? "a key file" : "a passphrase"}</span></p>
      <Table label="Contents of the backup" heads={["Kind", { right: "Items" }]}>
        {Object.entries(backup.counts).map(([kind, count]) => (
          <tr>
            <th scope="row">{kind}</th>
            <td class="right">{f.count(count)}</td>
          </tr>
        ))}
      </Table>
      {backup.files.length > 0 && (
        <Slices items={backup.files} size={50} label="the files">
          {(shown) => (
            <Table label="Files of the backup" heads={["File", { right: "Bytes" }, { right: "Epoch" }, { right: "Save" }]}>
              {shown.map((one) => <FileRow file={one} />)}
            </Table>
          )}
        </Slices>
      )}
    </>
  );
}

function FileRow({ file }: { file: FileLine }) {
  const keep = () => {
    const bytes = fromHex(file.content);
    if (bytes) save(new Blob([bytes]), file.name);
  };
  return (
    <tr>
      <th scope="row">{file.name}</th>
      <td class="right">{f.bytes(file.content.length / 2)}</td>
      <td class="right">{file.epoch ?? "–"}</td>
      <td class="right"><button onClick={keep} aria-label={`Save ${file.name}`}>Save</button></td>
    </tr>
  );
}

function Comparison({ backup }: { backup: OpenBackup }) {
  const [scope, setScope] = useState<Scope>({ accounts: true, buckets: true, replace: false });
  const [found, setFound] = useState<{ plan: Plan; scope: Scope }>();
  const [outcome, setOutcome] = useState<Outcome>();
  const [ended, setEnded] = useState(false);
  const [asking, setAsking] = useState(false);
  const passes = usePass();
  const set = (name: keyof Scope) => (on: boolean) => {
    setScope({ ...scope, [name]: on });
    setFound(undefined);
  };
  const compare = () => {
    setOutcome(undefined);
    setFound(undefined);
    return passes.run("Comparing", backup.file, async (progress) => setFound({ plan: await plan(backup, scope, progress), scope }));
  };
  // A restore has the scope that was compared.
  const write = (compared: Scope) => {
    setEnded(false);
    setOutcome({ restored: 0, failed: 0, failures: [] });
    setFound(undefined);
    void passes.run("Restoring", backup.file, async (progress) => {
      setOutcome(await restore(backup, compared, progress, setOutcome));
      setEnded(true);
    });
  };
  const written = found ? Object.values(found.plan.kinds).reduce((sum, tally) => sum + Object.entries(tally).reduce((all, [state, count]) => all + (isWritten(state as Example["state"], found.scope.replace) ? count : 0), 0), 0) : 0;
  const busy = passes.pass !== undefined;
  return (
    <>
      <h3>Comparison with the cluster</h3>
      <fieldset class="change" disabled={busy}>
        <legend>Parts</legend>
        <Check label="Accounts" hint="Tenants, users, roles, access keys and admin keys." on={scope.accounts} set={set("accounts")} />
        <Check label="Buckets" hint="Owners and settings. They need the accounts of their owners." on={scope.buckets} set={set("buckets")} />
        <Check label="Replace" hint="Undo changes and deletions that are later than the backup." on={scope.replace} set={set("replace")} />
      </fieldset>
      <div class="row">
        <button disabled={busy || !(scope.accounts || scope.buckets)} onClick={() => void compare()}>Compare</button>
        {found && may("put /admin/v1/backup/record") && <button class="danger" disabled={busy || written === 0} onClick={() => setAsking(true)}>Restore</button>}
      </div>
      {passes.error && <Failure text={passes.error} />}
      {passes.pass && <PassMeter pass={passes.pass} stop={passes.stop} />}
      {found && <PlanTable found={found.plan} replace={found.scope.replace} written={written} />}
      {outcome && <OutcomeText outcome={outcome} ended={ended} />}
      {asking && found && (
        <Ask title={`Restore ${f.count(written)} ${written === 1 ? "record" : "records"}`} verb="Restore" danger close={() => setAsking(false)} run={async () => write(found.scope)}>
          <RestoreText found={found.plan} scope={found.scope} />
        </Ask>
      )}
    </>
  );
}

const total = (found: Plan, states: Example["state"][]): number => Object.values(found.kinds).reduce((sum, tally) => sum + states.reduce((all, state) => all + (tally[state] ?? 0), 0), 0);

function RestoreText({ found, scope }: { found: Plan; scope: Scope }) {
  const [older, later] = [total(found, ["older"]), total(found, ["newer", "deleted"])];
  return (
    <>
      <p>{f.count(total(found, ["missing"]))} are made, and {f.count(older)} get the state of the backup. Buckets that are made are new and empty. Each record is a line of the audit trail.</p>
      {scope.replace && later > 0 ? <p class="reason">{f.count(later)} were changed or deleted after the backup: these changes are lost.</p> : <p class="quiet">Changes and deletions that are later than the backup stay.</p>}
      <p class="quiet">A deletion that is older than the reclaim age is forgotten, and what it deleted counts as missing. An interrupted run can be started again: what is restored already is skipped.</p>
    </>
  );
}

function OutcomeText({ outcome, ended }: { outcome: Outcome; ended: boolean }) {
  return (
    <>
      <p role="status"><Badge tone={!ended ? "busy" : outcome.failed > 0 ? "bad" : "good"}>{f.count(outcome.restored)} restored, {f.count(outcome.failed)} failed{ended ? "" : " so far"}</Badge></p>
      {outcome.failures.length > 0 && <ul class="findings" aria-label="Failures">{outcome.failures.map((failure) => <li class="reason">{failure}</li>)}</ul>}
    </>
  );
}

const STATES: Record<Example["state"], [string, string]> = {
  same: ["", ""],
  missing: ["", ""],
  older: ["will be changed", "will be changed"],
  newer: ["changed since, and stays", "changed since, and will be replaced"],
  deleted: ["deleted since, and stays", "deleted since, and will be made again"],
  refused: ["refused", "refused"],
};

function PlanTable({ found, replace, written }: { found: Plan; replace: boolean; written: number }) {
  return (
    <>
      <p class="verdict"><Badge tone="calm">Dry run: nothing was changed</Badge> <span class="note">{written === 0 ? "nothing is to be restored" : `${f.count(written)} ${written === 1 ? "record" : "records"} would be written`}</span></p>
      <Table label="Plan of the restore" heads={["Kind", { right: "Same" }, { right: "To create" }, { right: "To change" }, { right: "Later here" }, { right: "Refused" }]}>
        {Object.entries(found.kinds).map(([kind, tally]) => (
          <tr>
            <th scope="row">{kind}</th>
            {[tally.same, tally.missing, tally.older, (tally.newer ?? 0) + (tally.deleted ?? 0), tally.refused].map((count) => <td class="right">{f.count(count ?? 0)}</td>)}
          </tr>
        ))}
      </Table>
      {found.examples.length > 0 && (
        <ul class="findings" aria-label="Records that differ">
          {found.examples.map((one) => (
            <li>{one.kind} {one.name}: {STATES[one.state][replace ? 1 : 0]}{one.reason ? `: ${one.reason}` : ""}</li>
          ))}
        </ul>
      )}
    </>
  );
}
