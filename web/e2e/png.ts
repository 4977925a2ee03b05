import { deflateSync } from "node:zlib";
import type { Browser } from "playwright-core";

/** Reduces a PNG to 256 colours, which makes a screenshot several times smaller. */
export async function shrink(browser: Browser, png: Buffer): Promise<Buffer> {
  const page = await browser.newPage();
  try {
    const { width, height, palette, pixels } = await page.evaluate(indexed, png.toString("base64"));
    return encode(width, height, palette, Buffer.from(pixels, "base64"));
  } finally {
    await page.close();
  }
}

/**
 * Runs in the browser, which decodes the PNG. Colours are grouped by median cut;
 * the most frequent colour of a group represents it, so that flat areas keep
 * their exact colour.
 */
async function indexed(base64: string) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d")!;
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const colourAt = (i: number) => (data[i]! << 16) | (data[i + 1]! << 8) | data[i + 2]!;
  const counts = new Map<number, number>();
  for (let i = 0; i < data.length; i += 4) counts.set(colourAt(i), (counts.get(colourAt(i)) ?? 0) + 1);

  const shifts = [16, 8, 0];
  const group = (colours: [number, number][]) => {
    const ranges = shifts.map((shift) => {
      const channel = colours.map(([colour]) => (colour >> shift) & 255);
      return Math.max(...channel) - Math.min(...channel);
    });
    const range = Math.max(...ranges);
    const total = colours.reduce((sum, [, n]) => sum + n, 0);
    return { colours, shift: shifts[ranges.indexOf(range)]!, error: range * Math.sqrt(total) };
  };
  const groups = [group([...counts])];
  while (groups.length < 256) {
    const worst = groups.reduce((a, b) => (b.error > a.error ? b : a));
    if (worst.error === 0) break;
    const { colours, shift } = worst;
    const middle = colours.reduce((sum, [colour]) => sum + ((colour >> shift) & 255), 0) / colours.length;
    const below = colours.filter(([colour]) => ((colour >> shift) & 255) <= middle);
    const above = colours.filter(([colour]) => ((colour >> shift) & 255) > middle);
    groups.splice(groups.indexOf(worst), 1, group(below), group(above));
  }

  const index = new Map<number, number>();
  const palette = groups.flatMap(({ colours }, i) => {
    for (const [colour] of colours) index.set(colour, i);
    const [colour] = colours.reduce((a, b) => (b[1] > a[1] ? b : a));
    return shifts.map((shift) => (colour >> shift) & 255);
  });
  let pixels = "";
  for (let i = 0; i < data.length; i += 4) pixels += String.fromCharCode(index.get(colourAt(i))!);
  return { width, height, palette, pixels: btoa(pixels) };
}

/** Encodes an image with a palette. */
function encode(width: number, height: number, palette: readonly number[], pixels: Buffer): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3], 8); // 8 bits per pixel, indexed
  const rows = Buffer.alloc((width + 1) * height); // each row starts with filter type 0
  for (let y = 0; y < height; y++) pixels.copy(rows, y * (width + 1) + 1, y * width, (y + 1) * width);
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk("IHDR", header),
    chunk("PLTE", Buffer.from(palette)),
    chunk("IDAT", deflateSync(rows, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc32(body), body.length + 4);
  return out;
}

function crc32(data: Buffer): number {
  let crc = 0xffffffff;
  for (const byte of data) {
    crc ^= byte;
    for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}
