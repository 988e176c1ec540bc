// Answers of nodes to rings that a job pushes.
import * as f from "../format";
import type { Schemas } from "../session";
import { Badge, Table, type Tone } from "../ui/parts";
import { Slices } from "../ui/pager";

interface Answer {
  node: string;
  address: string;
  ring: string;
  epoch: number;
  outcome: string;
  reason?: string | null;
}

const TONES: Record<string, Tone> = { accepted: "good", waits: "busy", known: "calm", refused: "bad", unreachable: "bad" };

export function pushOf(job: Schemas["JobLine"]): Answer[] | undefined {
  return job.kind === "ring-push" && Array.isArray(job.detail) ? (job.detail as Answer[]) : undefined;
}

/** Answers, those of nodes without the ring first. */
export function PushAnswers({ answers }: { answers: Answer[] }) {
  if (answers.length === 0) return <p class="quiet">No node has answered yet.</p>;
  const order = Object.keys(TONES).reverse();
  const sorted = [...answers].sort((a, b) => order.indexOf(a.outcome) - order.indexOf(b.outcome) || a.node.localeCompare(b.node, undefined, { numeric: true }));
  return (
    <Slices items={sorted} size={50} label="the answers">
      {(shown) => (
        <Table label="Answers of nodes" heads={["Node", "Ring", { right: "Epoch" }, "Outcome", "Reason"]}>
          {shown.map((answer) => (
            <tr>
              <th scope="row">{answer.node} <small class="quiet">{answer.address}</small></th>
              <td>{answer.ring}</td>
              <td class="right">{f.count(answer.epoch)}</td>
              <td><Badge tone={TONES[answer.outcome] ?? "calm"}>{answer.outcome}</Badge></td>
              <td>{answer.reason ?? ""}</td>
            </tr>
          ))}
        </Table>
      )}
    </Slices>
  );
}
