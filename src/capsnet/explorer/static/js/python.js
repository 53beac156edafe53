/** The view as a Python snippet that prints the numbers on the page. */

const quote = (text) => JSON.stringify(text); // a JSON string is a Python string too

/** `packed` is the picture's bytes deflated as base64url, `turned` lists [dimension, value] of the turned knobs. */
export function snippet({ model, seen: { height, width, channels }, packed, klass, turned }) {
  const padded = packed + "=".repeat((4 - (packed.length % 4)) % 4);
  const lines = padded.match(/.{1,72}/g) ?? [""];
  return `import base64
import zlib

import torch

import capsnet

model = capsnet.load(${quote(model.name)}).eval()  # or the path of its weights or run folder
packed = (
${lines.map((line) => `    ${quote(line)}`).join("\n")}
)
pixels = zlib.decompress(base64.urlsafe_b64decode(packed), -15)
images = torch.tensor(list(pixels)).view(1, ${height}, ${width}, ${channels}).permute(0, 3, 1, 2) / 255  # (B, C, H, W)

with torch.inference_mode():
    output = model(images)
for name, length in zip(model.class_names, output.lengths[0].tolist()):
    print(f"{name}: {length:.3f}")
${turned.length && model.decoder ? tweaked(model, klass, turned) : ""}`;
}

const tweaked = (model, klass, turned) => `
poses = output.poses.clone()  # (B, J, D); these knobs of the capsule ${quote(model.classes[klass])} were turned
${turned.map(([d, value]) => `poses[0, ${klass}, ${d}] = ${Number(value.toPrecision(9))}`).join("\n")}
with torch.inference_mode():
    picture = model.decode(poses, torch.tensor([${klass}]))  # (B, C, H, W)
print(f"length now {poses[0, ${klass}].norm():.3f}, ink {picture.sum():.1f}")
`;
