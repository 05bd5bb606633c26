// The TypeScript client from npm as an application uses it, and what it must get: every byte, once, in order.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client";
import { expect, test } from "vitest";

const base = process.env.WEIR_URL;
if (!base) throw new Error("WEIR_URL is not set: main.rs sets it");

const OCTETS = "application/octet-stream";
const encoder = new TextEncoder();
const decoder = new TextDecoder();

let count = 0;
const fresh = () => `${base}/v1/stream/client/${process.version}/${process.pid}-${count++}`;
const create = (contentType, more = {}) => DurableStream.create({ url: fresh(), contentType, ...more });

/** Follows a stream to its end in one live mode; calls `then(n)` after each piece, with what has come so far. */
async function follow(url, live, offset, pieces, then = () => {}) {
  const response = await stream({ url, live, offset });
  let seen = pieces.empty;
  for await (const piece of pieces.of(response)) {
    seen = pieces.join(seen, piece);
    await then(seen);
  }
  return seen;
}
const text = { empty: "", of: (r) => r.textStream(), join: (a, b) => a + b };
const json = { empty: [], of: (r) => r.jsonStream(), join: (a, b) => [...a, b] };
const bytes = {
  empty: new Uint8Array(),
  of: (r) => r.bodyStream(),
  join: (a, b) => Uint8Array.from([...a, ...b]),
};

test("a stream is created once, found, described and deleted", async () => {
  const handle = await create("text/plain");
  const again = await DurableStream.create({ url: handle.url, contentType: "text/plain" });
  expect(again.url).toBe(handle.url);
  await expect(DurableStream.create({ url: handle.url, contentType: "application/json" })).rejects.toMatchObject({
    status: 409,
  });
  const found = await DurableStream.connect({ url: handle.url });
  expect(found.contentType).toBe("text/plain");
  expect((await found.head()).streamClosed).toBe(false);
  await handle.delete();
  expect(await DurableStream.head({ url: handle.url })).toEqual({ exists: false });
});

test("first bytes come with the creation", async () => {
  const handle = await create("text/plain", { body: "first" });
  await handle.append(" second");
  expect(await (await handle.stream({ live: false })).text()).toBe("first second");
});

test("text is read as it was appended, from any offset", async () => {
  const handle = await create("text/plain");
  const offsets = [];
  for (const part of ["één ", "", "два ", "三\n", "4\r\n"].filter(Boolean)) {
    await handle.append(part);
    offsets.push((await handle.head()).offset);
  }
  expect(await (await handle.stream({ live: false })).text()).toBe("één два 三\n4\r\n");
  expect(await (await handle.stream({ live: false, offset: offsets[1] })).text()).toBe("三\n4\r\n");
  expect(await (await handle.stream({ live: false, offset: offsets[3] })).text()).toBe("");
  expect([...offsets].sort()).toEqual(offsets);
});

test("bytes are read as they were appended", async () => {
  const handle = await create(OCTETS);
  const all = Uint8Array.from({ length: 256 * 300 }, (_, n) => (n * 7 + (n >> 8)) % 256);
  for (let at = 0; at < all.length; at += 9_999) await handle.append(all.slice(at, at + 9_999));
  expect(await (await handle.stream({ live: false })).body()).toEqual(all);
});

test("a stream of chunks is appended as one record", async () => {
  const handle = await create("text/plain");
  const chunks = async function* () {
    for (let n = 0; n < 50; n++) yield `${n},`;
  };
  await handle.appendStream(chunks());
  const want = Array.from({ length: 50 }, (_, n) => `${n},`).join("");
  expect(await (await handle.stream({ live: false })).text()).toBe(want);
});

test("JSON values are read one by one", async () => {
  const handle = await create("application/json");
  const values = [{ n: 1 }, [2, [3]], "four", 5.5, null, true, { deep: { unicode: "ä\u0000z" } }];
  for (const value of values) await handle.append(JSON.stringify(value));
  expect(await (await handle.stream({ live: false })).json()).toEqual(values);
});

test("a sequence that goes backwards is refused", async () => {
  const handle = await create("text/plain");
  await handle.append("a", { seq: "0002" });
  await expect(handle.append("b", { seq: "0001" })).rejects.toMatchObject({ status: 409 });
  expect(await (await handle.stream({ live: false })).text()).toBe("a");
});

for (const [type, make, read] of [
  ["application/json", (n) => JSON.stringify({ n }), async (r) => (await r.json()).map((v) => v.n)],
  ["text/plain", (n) => `${n};`, async (r) => (await r.text()).split(";").filter(Boolean).map(Number)],
]) {
  test(`an idempotent producer writes ${type} exactly once, in order`, async () => {
    const handle = await create(type);
    const errors = [];
    const producer = new IdempotentProducer(handle, "p", {
      autoClaim: true,
      maxBatchBytes: 2_000,
      onError: (e) => errors.push(e),
    });
    const numbers = Array.from({ length: 2_000 }, (_, n) => n);
    for (const n of numbers) producer.append(make(n));
    await producer.flush();
    await producer.detach();
    expect(errors).toEqual([]);
    expect(await read(await handle.stream({ live: false }))).toEqual(numbers);
  });
}

test("a producer that was replaced is fenced", async () => {
  const handle = await create("text/plain");
  const errors = [];
  const old = new IdempotentProducer(handle, "p", { onError: (e) => errors.push(e) });
  old.append("old ");
  await old.flush();
  const next = new IdempotentProducer(handle, "p", { epoch: 1, onError: (e) => errors.push(e) });
  next.append("new ");
  await next.flush();
  expect(errors).toEqual([]);
  old.append("late ");
  await old.flush().catch(() => {});
  expect(errors.map((e) => e.constructor.name)).toEqual(["StaleEpochError"]);
  expect(await (await handle.stream({ live: false })).text()).toBe("old new ");
});

test("closing ends a stream for writers", async () => {
  const handle = await create("text/plain");
  await handle.append("all ");
  const { finalOffset } = await handle.close({ body: "done" });
  expect((await handle.head()).offset).toBe(finalOffset);
  expect((await handle.head()).streamClosed).toBe(true);
  await expect(handle.append("more")).rejects.toMatchObject({ status: 409 });
  expect(await (await handle.stream({ live: false })).text()).toBe("all done");
});

for (const live of ["long-poll", "sse"]) {
  test(`text is followed by ${live} from the beginning to the close`, async () => {
    const handle = await create("text/plain");
    let want = "";
    const say = async (n) => {
      const part = `line ${n}\n`;
      want += part;
      await handle.append(part);
    };
    await say(0);
    // Each piece that arrives is answered by the next, so that most of them come while the reader waits.
    let said = 1;
    const seen = await follow(handle.url, live, "-1", text, async (sofar) => {
      if (sofar !== want) return;
      if (said < 20) await say(said++);
      else await handle.close();
    });
    expect(seen).toBe(want);
  });

  test(`JSON is followed by ${live}, with many writers`, async () => {
    const handle = await create("application/json");
    const following = follow(handle.url, live, "-1", json);
    const writer = async (w) => {
      for (let n = 0; n < 50; n++) await handle.append(JSON.stringify({ w, n }));
    };
    await Promise.all([0, 1, 2, 3].map(writer));
    await handle.close();
    const seen = await following;
    expect(seen.length).toBe(200);
    for (const w of [0, 1, 2, 3]) {
      expect(seen.filter((v) => v.w === w).map((v) => v.n)).toEqual(Array.from({ length: 50 }, (_, n) => n));
    }
  });

  test(`bytes are followed by ${live}`, async () => {
    const handle = await create(OCTETS);
    const parts = [[0, 255, 10, 13, 10], [128], Array.from({ length: 5_000 }, (_, n) => n % 251)];
    await handle.append(Uint8Array.from(parts[0]));
    const following = follow(handle.url, live, "-1", bytes);
    await handle.append(Uint8Array.from(parts[1]));
    await handle.append(Uint8Array.from(parts[2]));
    await handle.close();
    expect([...(await following)]).toEqual(parts.flat());
  });

  test(`following by ${live} goes on from an offset`, async () => {
    const handle = await create("text/plain");
    await handle.append("before ");
    const { offset } = await handle.head();
    await handle.append("after ");
    // The end comes by itself: a last piece that closes the stream right behind a control event is received by this client
    // and then dropped (it asks whether to go on by a state that its prefetch has already advanced past the queued piece).
    const then = async (seen) => {
      if (seen === "after ") await handle.append("end");
      if (seen === "after end") await handle.close();
    };
    expect(await follow(handle.url, live, offset, text, then)).toBe("after end");
  });
}
