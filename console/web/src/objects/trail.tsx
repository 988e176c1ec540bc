// Way from the buckets to a folder or an object, as links.
import { follow, objects, type Place } from "../route";

/** Longest key whose folders are all shown. */
const STEPS_MAX = 12;

export function Trail({ bucket, prefix, name }: { bucket: string; prefix: string; name?: string }) {
  const parts = prefix.split("/").slice(0, -1);
  const steps = parts.map((part, at) => ({ label: part || "(no name)", place: { bucket, prefix: `${parts.slice(0, at + 1).join("/")}/` } as Place }));
  const shown = steps.length > STEPS_MAX ? steps.slice(-STEPS_MAX) : steps;
  const all: { label: string; place: Place }[] = [{ label: "Buckets", place: {} }, { label: bucket, place: { bucket } }, ...shown];
  return (
    <nav class="trail" aria-label="Way to here">
      <ol>
        {all.map(({ label, place }) => (
          <li>
            <a href={objects(place)} onClick={(event) => follow(event, objects(place))}>{label}</a>
          </li>
        ))}
        {name !== undefined && <li aria-current="page">{name}</li>}
      </ol>
    </nav>
  );
}
