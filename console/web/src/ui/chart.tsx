// Charts of a few lines, as SVG.
export interface Series {
  name: string;
  values: (number | null)[];
}

const [WIDTH, HEIGHT] = [480, 132];

/** Lines over time, the first one filled. The last value of each stands in the legend. */
export function Chart({ label, series, format, floor }: { label: string; series: Series[]; format: (value: number) => string; floor: number }) {
  const known = series.flatMap((one) => one.values).filter((value): value is number => value !== null && Number.isFinite(value));
  const top = Math.max(floor, ...known) * 1.15;
  const length = Math.max(2, ...series.map((one) => one.values.length));
  const x = (at: number, of: number) => WIDTH - ((of - 1 - at) / (length - 1)) * WIDTH;
  // Infinite values lie at the upper edge.
  const y = (value: number) => HEIGHT - 4 - Math.min(1, value / top) * (HEIGHT - 10);
  const lines = series.map((one) => {
    let open = false;
    const steps = one.values.map((value, at) => {
      if (value === null) {
        open = false;
        return "";
      }
      const step = `${open ? "L" : "M"}${x(at, one.values.length).toFixed(1)} ${y(value).toFixed(1)}`;
      open = true;
      return step;
    });
    return steps.join("");
  });
  const first = series[0]?.values ?? [];
  const filled = first.length > 1 && first.every((value) => value !== null);
  const last = (values: (number | null)[]) => values[values.length - 1] ?? null;
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
        {[0.25, 0.5, 0.75].map((part) => <line class="step" x1="0" x2={WIDTH} y1={y((top / 1.15) * part)} y2={y((top / 1.15) * part)} />)}
        {filled && <path class="area" d={`${lines[0]}L${WIDTH} ${HEIGHT}L${x(0, first.length).toFixed(1)} ${HEIGHT}Z`} />}
        {lines.map((line, at) => <path class={`line s${at}`} d={line} />).reverse()}
      </svg>
      <span class="top">{format(top / 1.15)}</span>
      <figcaption>
        {series.map((one, at) => (
          <span>
            <i class={`key s${at}`} aria-hidden="true" />
            {one.name} <b>{last(one.values) === null ? "–" : format(last(one.values) ?? 0)}</b>
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

/** Ring that shows a share, with a text in its middle. */
export function Donut({ share, label, text }: { share: number; label: string; text: string }) {
  const length = 2 * Math.PI * 42;
  const part = Math.max(0, Math.min(1, share)) * length;
  return (
    <svg class="donut" viewBox="0 0 100 100" role="img" aria-label={label}>
      <circle class="track" cx="50" cy="50" r="42" />
      <circle class={share > 0.9 ? "fill bad" : share > 0.75 ? "fill warn" : "fill"} cx="50" cy="50" r="42" stroke-dasharray={`${part} ${length}`} transform="rotate(-90 50 50)" />
      <text x="50" y="56" text-anchor="middle">{text}</text>
    </svg>
  );
}
