/** A small line of the latest values next to a number. */
interface Props {
  values: (number | null)[];
  /** The top of the chart, if the values are below it. */
  least?: number;
}

const WIDTH = 52;
const HEIGHT = 18;

export function Sparkline({ values, least = 1 }: Props) {
  const most = Math.max(least, ...values.map((value) => value ?? 0));
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.flatMap((value, at) =>
    value === null ? [] : `${(at * step).toFixed(1)},${(HEIGHT - 1 - (value / most) * (HEIGHT - 2)).toFixed(1)}`,
  );
  return (
    <svg class="sparkline" width={WIDTH} height={HEIGHT} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true">
      {points.length > 1 && <polyline points={points.join(" ")} fill="none" stroke="currentColor" stroke-width="1.25" />}
    </svg>
  );
}
