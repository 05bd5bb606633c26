// The protocol's public suite. Its own command line looks for tests where vitest does not, so it is called from here.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

const baseUrl = process.env.WEIR_URL;
if (!baseUrl) throw new Error("WEIR_URL is not set: main.rs sets it");

runConformanceTests({ baseUrl, longPollTimeoutMs: 500 });
