import { afterEach, expect, test, vi } from "vitest";
import { get, Problem, post } from "./api.ts";

afterEach(() => vi.unstubAllGlobals());

const answer = (status: number, body: string, type: string) =>
  vi.stubGlobal("fetch", async () => new Response(body, { status, headers: { "Content-Type": type } }));

const failure = async (of: Promise<unknown>): Promise<Problem> => {
  const error = await of.catch((e: unknown) => e);
  expect(error).toBeInstanceOf(Problem);
  return error as Problem;
};

test("a missing endpoint is not the same as an unknown rule", async () => {
  answer(404, "404 page not found", "text/plain; charset=utf-8");
  expect((await failure(get("/v1/queue"))).absent).toBe(true);
  answer(404, '{"detail":"there is no rule \\"x\\""}', "application/problem+json");
  expect(await failure(get("/v1/top?rule=x"))).toMatchObject({
    absent: false,
    message: 'There is no rule "x".',
  });
});

test("says what is wrong", async () => {
  answer(400, '{"detail":"\\"for\\" is missing"}', "application/problem+json");
  expect((await failure(post("/v1/keys/ban", {}))).message).toBe('"for" is missing.');
  answer(502, "bad gateway", "text/html");
  expect((await failure(get("/v1/status"))).message).toBe("The server responded with status 502.");
  vi.stubGlobal("fetch", async () => {
    throw new TypeError("Failed to fetch");
  });
  expect(await failure(get("/v1/status"))).toMatchObject({
    status: 0,
    message: "The server does not respond.",
  });
});

test("sends and returns JSON, relative to the path of the page", async () => {
  const calls: [string, RequestInit][] = [];
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    calls.push([path, init]);
    return Response.json({ limit: 5 });
  });
  expect(await post("/v1/keys/peek", { rule: "login" })).toEqual({ limit: 5 });
  expect(calls[0]![0]).toBe("./v1/keys/peek");
  expect(calls[0]![1]).toMatchObject({ method: "POST", body: '{"rule":"login"}' });
});
