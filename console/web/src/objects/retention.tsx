// Dry run of retention: which generations of checkpoint sets are withdrawn, and when.
import { useState } from "preact/hooks";
import { send } from "../s3/client";
import { Card } from "../ui/parts";
import { Withdrawals, type WithdrawalPage } from "../ui/withdrawals";

/** Page of the withdrawals of sets whose names begin with `prefix`. */
export async function retention(bucket: string, prefix: string, after?: string): Promise<WithdrawalPage> {
  const query = { checkpoints: "", retention: "", prefix: prefix || undefined, after };
  return (await (await send("GET", { bucket }, { query })).json()) as WithdrawalPage;
}

/** Withdrawals of all sets of a bucket, on request. */
export function RetentionPlan({ bucket }: { bucket: string }) {
  const [looking, setLooking] = useState(false);
  return (
    <Card title="Retention of checkpoints" note="what rules will withdraw, if nothing changes" wide action={<button onClick={() => setLooking(!looking)} aria-expanded={looking}>What retention will withdraw</button>}>
      {looking && <Withdrawals load={(after) => retention(bucket, "", after)} />}
    </Card>
  );
}
