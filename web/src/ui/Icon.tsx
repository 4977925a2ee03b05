const shapes = {
  search:
    "M7 2a5 5 0 1 0 3 9l3.500 3.500 1-1L11 10a5 5 0 0 0-4-8m0 1.500a3.500 3.500 0 1 1 0 7 3.500 3.500 0 0 1 0-7",
  ban: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1m0 1.600c1.200 0 2.300.4 3.200 1.100L3.700 11.200A5.400 5.400 0 0 1 8 2.600m4.300 2.200a5.400 5.400 0 0 1-7.500 7.500z",
  grant: "M7 2h2v5h5v2H9v5H7V9H2V7h5z",
  reset: "M8 2.500V0L3.500 3.500 8 7V4.500A4 4 0 1 1 4 8.500H2A6 6 0 1 0 8 2.500",
  pause: "M4 2.500h3v11H4zm5 0h3v11H9z",
  play: "M4 2.500v11l9-5.500z",
  copy: "M5 1h9v10h-2V3H5zM2 5h8v10H2zm1.500 1.500v7h5v-7z",
  close: "M3.500 2.500 8 7l4.500-4.500 1 1L9 8l4.500 4.500-1 1L8 9l-4.500 4.500-1-1L7 8 2.500 3.500z",
} as const;

/** A decorative icon next to text, hidden from screen readers. */
export function Icon(props: { name: keyof typeof shapes }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="13" height="13" aria-hidden="true">
      <path d={shapes[props.name]} fill="currentColor" fill-rule="evenodd" />
    </svg>
  );
}
