// Report of a census: counts, verdict and findings.
import * as f from "../format";
import type { Schemas } from "../session";
import { Badge, Table } from "../ui/parts";
import { Slices } from "../ui/pager";

interface Counts {
  things: number;
  copies: number;
  missing: number;
  older: number;
  stray: number;
}

export interface CensusReport {
  partitions: number;
  registers: Counts;
  extents: Counts;
  lost: number;
  hints: number;
  moving: number;
  silent: number[];
  without_votes: number[];
  findings: string[];
  clean: boolean;
}

export function censusOf(job: Schemas["JobLine"]): CensusReport | undefined {
  const detail = job.detail as CensusReport | null | undefined;
  return job.kind === "census" && detail?.registers !== undefined && detail.extents !== undefined ? detail : undefined;
}

const NAMES = (devices: number[]): string => devices.slice(0, 50).map((device) => `d${device}`).join(", ") + (devices.length > 50 ? ` and ${devices.length - 50} more` : "");

export function CensusFindings({ report }: { report: CensusReport }) {
  const { silent = [], without_votes: voteless = [], findings = [] } = report;
  return (
    <div class="change">
      <p class="verdict"><Badge tone={report.clean ? "good" : report.lost > 0 ? "bad" : "warn"}>{report.clean ? "Clean" : "Not clean"}</Badge></p>
      <p>{report.clean ? "Every replica is where the rings place it, and nowhere else." : "Workers restore what is missing, and remove what is elsewhere. Take another census afterwards."}</p>
      <Table label="Counts of the census" heads={["Kind", { right: "Things" }, { right: "Copies" }, { right: "Missing" }, { right: "Behind" }, { right: "Stray" }]}>
        {([["Registers", report.registers], ["Extents", report.extents]] as const).map(([name, counts]) => (
          <tr>
            <th scope="row">{name}</th>
            {[counts.things, counts.copies, counts.missing, counts.older, counts.stray].map((count) => <td class="right">{f.count(count)}</td>)}
          </tr>
        ))}
      </Table>
      <p class="quiet">{f.count(report.partitions)} partitions; {f.count(report.moving)} replicas move according to the rings; {f.count(report.hints)} hints.</p>
      <ul class="reasons">
        {report.lost > 0 && <li><b>{f.count(report.lost)} extents are lost:</b> too few fragments are left to recover them. Keep the quarantine of all devices: it may have the last ones.</li>}
        {silent.length > 0 && <li>Devices without an answer: {NAMES(silent)}. Start their nodes, or replace them.</li>}
        {voteless.length > 0 && <li>Devices without votes: {NAMES(voteless)}. They get them after they are synced.</li>}
      </ul>
      {findings.length > 0 && (
        <Slices items={findings} size={50} label="the findings">
          {(shown) => <ul class="findings" aria-label="Findings">{shown.map((finding) => <li>{finding}</li>)}</ul>}
        </Slices>
      )}
    </div>
  );
}
