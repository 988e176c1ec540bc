// Effective settings of a process with their sources, and the format level of the cluster.
import { useState } from "preact/hooks";
import { change, get, useLive } from "../api";
import { getOf, ProcessSelect, useProcesses } from "../process/choice";
import { may, type Schemas } from "../session";
import { Ask, Badge, Card, Empty, Field, Head, Loaded, Table, type Tone } from "../ui/parts";
import { Slices } from "../ui/pager";

const TONES: Record<string, Tone> = { flag: "busy", environment: "warn" };

export function Settings() {
  const processes = useProcesses("/admin/v1/settings", false);
  const live = useLive(() => getOf<Schemas["SettingsReply"]>(processes.chosen?.[0], "/admin/v1/settings"), 0, [processes.name]);
  const [text, setText] = useState("");
  return (
    <>
      <Head title="Settings" lead="Settings of a process that are set. Flags win over the environment, and the environment over the file; all others have the defaults of the version." />
      <Card wide>
        <div class="filters">
          <ProcessSelect choice={processes} />
          <Field label="Setting, value or source" value={text} on={setText} />
        </div>
        <Loaded live={live}>
          {({ version, settings, sources }) => {
            const wanted = text.toLowerCase();
            const lines = Object.entries(settings)
              .map(([name, value]) => ({ name, value, source: sources?.[name] ?? "the program" }))
              .filter((line) => Object.values(line).some((one) => one.toLowerCase().includes(wanted)));
            return (
              <>
                {lines.length === 0 ? (
                  <Empty title={wanted ? "No setting matches" : "Nothing is set"}>{wanted ? "" : "Everything has its default."}</Empty>
                ) : (
                  <Table label="Settings" heads={["Setting", "Value", "Source"]}>
                    {lines.map(({ name, value, source }) => (
                      <tr>
                        <th scope="row"><code>{name}</code></th>
                        <td class="names">{value === "(not shown)" ? <span class="quiet">not shown</span> : <code>{value}</code>}</td>
                        <td><Badge tone={TONES[source] ?? "calm"}>{source}</Badge></td>
                      </tr>
                    ))}
                  </Table>
                )}
                <p class="note">Martlet {version}. Secrets and names of customers are not shown, and of URLs the host alone. Settings change with the file and a restart.</p>
              </>
            );
          }}
        </Loaded>
      </Card>
      <Releases />
    </>
  );
}

interface Process {
  name: string;
  version: string;
  release: Schemas["ReleaseLine"] | null | undefined;
}

/** Versions of all processes, and the step that ends an upgrade. */
function Releases() {
  const live = useLive(() => get<Schemas["ServerStatus"]>("/admin/v1/status"), 30_000, []);
  const [asking, setAsking] = useState(false);
  const [done, setDone] = useState("");
  const finalize = async () => {
    const { level, before } = await change<Schemas["FinalizeReply"]>("POST", "/admin/v1/cluster/finalize", {}, null);
    setDone(level === before ? `The format level is ${level}, the newest of this release: nothing was to do.` : `The format level rose from ${before} to ${level}.`);
    await live.reload();
  };
  return (
    <Card title="Versions and format level" wide action={<>{may("post /admin/v1/cluster/finalize") && <button onClick={() => setAsking(true)}>Raise the format level</button>}</>}>
      {done && <p class="farewell" role="status">{done}</p>}
      <Loaded live={live}>
        {(status) => {
          const processes: Process[] = [
            { name: `${status.role || "server"} (this process)`, version: status.version, release: status.release },
            ...(status.nodes ?? []).flatMap((node) => [{ name: `storage-node ${node.name}`, version: node.report?.version ?? "no report", release: node.report?.release }]),
            ...(status.members ?? []).map((member) => ({ name: member.role ?? "", version: member.version, release: member.release })),
          ];
          return (
            <Slices items={processes} size={50} label="the processes">
              {(shown) => (
                <Table label="Versions" heads={["Process", "Version", { right: "Format level" }, { right: "Newest that it writes" }]}>
                  {shown.map(({ name, version, release }) => (
                    <tr>
                      <th scope="row">{name}</th>
                      <td>{version}</td>
                      <td class="right">{release?.format_level ?? "–"}</td>
                      <td class="right">{release?.formats_newest ?? "–"}</td>
                    </tr>
                  ))}
                </Table>
              )}
            </Slices>
          );
        }}
      </Loaded>
      {asking && (
        <Ask title="Raise the format level" verb="Raise it" danger run={finalize} close={() => setAsking(false)}>
          <p>The way back to the release before is lost: its processes can't read what is written from then on. Raise the level once the new release has proved itself. Each node must answer, and each process must run the new release; the server names those that don't.</p>
        </Ask>
      )}
    </Card>
  );
}
