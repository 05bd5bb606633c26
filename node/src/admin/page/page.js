// Polls the admin API of the node that served this page, and shows what it says.
//
// What is shown is changed in place, and only where it differs, so that nothing flickers, loses its focus or its
// selection. All text goes through textContent: a stream's name is never markup. The token stays in sessionStorage.
"use strict";

const EVERY_MS = 1000;
const PATIENCE_MS = 5000;
const TOKEN = "weir-token";

const $ = (id) => document.getElementById(id);
const number = (n) => n.toLocaleString("en-US");
const plural = (n, one) => `${number(n)} ${one}${n === 1 ? "" : "s"}`;
const clock = (ms) => new Date(ms).toLocaleTimeString();

function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// --- Changing the page in place ---

function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

function level(element, value) {
  if (value) element.dataset.level = value;
  else delete element.dataset.level;
}

function made(tag, className, ...inner) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inner);
  return element;
}

/** Makes `parent` have one child per item, in order; those that stay are kept and filled anew. */
function keyed(parent, items, key, make, fill) {
  const known = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    fill(child, item);
  }
  for (const child of known.values()) child.remove();
}

/** A row of cells; the first names it. */
function row(classes) {
  return made("tr", "", ...classes.map((name, n) => {
    const cell = made(n === 0 ? "th" : "td", name);
    if (n === 0) cell.scope = "row";
    return cell;
  }));
}

// --- Asking ---

const token = {
  get: () => { try { return sessionStorage.getItem(TOKEN); } catch { return null; } },
  set: (value) => { try { sessionStorage.setItem(TOKEN, value); } catch { /* asked for again after a reload */ } },
  forget: () => { try { sessionStorage.removeItem(TOKEN); } catch { /* nothing was kept */ } },
};

class WantsToken extends Error {}

/** An answer that is no good: what the problem says. */
class Refused extends Error {}

async function ask(path) {
  const held = token.get();
  const answer = await fetch(path, {
    headers: held ? { Authorization: `Bearer ${held}` } : {},
    cache: "no-store",
    credentials: "omit",
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (answer.status === 401) throw new WantsToken();
  const body = await answer.json();
  const date = Date.parse(answer.headers.get("date") ?? "");
  if (!answer.ok && !Array.isArray(body.reasons)) throw new Refused(body.detail ?? `status ${answer.status}`);
  // Ages are told by the node's clock; the browser's may be wrong.
  return { body, now: Number.isNaN(date) ? Date.now() : date };
}

// --- Showing ---

function showSummary(c, members) {
  text($("cluster"), c.identity ? `cluster ${c.uid}, ${c.identity}` : `cluster ${c.uid}`);
  const leader = c.log.leaderNode ?? (c.log.leader === undefined ? "none known" : `raft id ${c.log.leader}`);
  text($("sum-leader"), leader);
  level($("sum-leader"), c.log.leader === undefined ? "bad" : "");
  text($("sum-leader-more"), `term ${number(c.log.term)}`);

  const voters = members.members.filter((m) => m.voter).length;
  const quorum = { true: "healthy", false: "lost" }[c.quorumHealthy] ?? (c.log.leader === undefined ? "unknown" : "has a leader");
  text($("sum-quorum"), quorum);
  level($("sum-quorum"), c.quorumHealthy === false || c.log.leader === undefined ? "bad" : "");
  text($("sum-quorum-more"), `${voters} of ${plural(c.voterTarget, "voter")} wanted`);
  level($("sum-quorum-more"), voters < c.voterTarget ? "warn" : "");

  text($("sum-nodes"), `${c.nodesAlive} of ${c.nodes} alive`);
  level($("sum-nodes"), c.nodesAlive < c.nodes ? "bad" : "");
  text($("sum-nodes-more"), `configured for ${c.configuredSize}`);
  text($("sum-streams"), number(c.streams));
  text($("sum-streams-more"), `${number(c.openStreams)} open`);
  text($("sum-log"), number(c.log.appliedIndex));
  const behind = c.log.lastIndex - c.log.appliedIndex;
  text($("sum-log-more"), `applied here${behind > 0 ? `, ${number(behind)} to go` : ""}; format ${c.formatVersion}`);
  document.title = `Weir: ${c.nodesAlive} of ${plural(c.nodes, "node")}`;
  text($("footer"), `Answered by ${c.answeredBy.node}, weir ${c.answeredBy.version}. What other nodes know newer shows here once this one has applied it.`);
}

const stateOf = (n) => (!n.alive ? ["gone", "bad"] : n.draining ? [n.assignedStreams ? "draining" : "drained", "warn"] : ["alive", ""]);

function nodeRow() {
  const tr = row(["", "", "num", "wide", "num", "num", "", ""]);
  const [name, state, , load] = tr.children;
  name.append(made("span", "name"), made("span", "tags"));
  state.append(made("span", "state"));
  load.append(made("div", "load", made("div", "bar", made("span", "fill"), made("span", "share")), made("span", "text")));
  return tr;
}

function fillNode(tr, n, { cluster, now, most }) {
  const [name, state, slots, load, open, lag, lease, epoch] = tr.children;
  tr.dataset.node = n.id;
  const me = n.id === cluster.answeredBy.node;
  text(name.querySelector(".name"), n.id);
  const tags = [n.id === cluster.log.leaderNode && "leader", me && "this node", n.pinnedTo && "pinned"].filter(Boolean);
  keyed(name.querySelector(".tags"), tags, (t) => t, () => made("span", "tag"), (e, t) => {
    text(e, t);
    e.title = { leader: "leads the metadata log", "this node": "answers this page" }[t]
      ?? `only incarnation ${n.pinnedTo} may register`;
  });
  const [word, how] = stateOf(n);
  text(state.firstChild, word);
  level(state.firstChild, how);
  text(slots, number(n.slots));

  const percent = (x) => `${(100 * x) / most}%`;
  const fill = load.querySelector(".fill");
  fill.style.width = percent(n.assignedStreams);
  fill.dataset.over = n.assignedStreams > 1.1 * n.fairShare + 1;
  const share = load.querySelector(".share");
  share.hidden = n.fairShare === 0;
  share.style.left = percent(n.fairShare);
  const takes = n.alive && !n.draining && n.slots > 0;
  text(load.querySelector(".text"), takes
    ? `${number(n.assignedStreams)} of ${number(n.fairShare)}`
    : `${number(n.assignedStreams)}, takes none`);
  load.title = takes
    ? `${plural(n.assignedStreams, "stream")} placed or open here; the mark is its fair share by slots, ${number(n.fairShare)}`
    : "takes no new streams";
  text(open, number(n.openStreams));

  text(lag, n.logLag === undefined ? "–" : number(n.logLag));
  const runs = me ? cluster.answeredBy.leaseMs > 0 : undefined;
  const silent = n.silentMs ?? 0;
  const said = !n.alive ? "–"
    : runs === false ? "ran out"
    : runs ? "held"
    : n.silentMs === undefined ? "–"
    : silent < 1000 ? "heard"
    : `silent ${duration(silent)}`;
  text(lease, said);
  lease.className = runs === false ? "bad" : n.alive && silent >= 3000 ? "warn" : "";

  if (!epoch.firstChild) epoch.append(made("span", "mono"), made("small", ""));
  text(epoch.firstChild, String(n.epoch));
  // An epoch is the wall clock of its process's start, unless that clock was behind.
  text(epoch.lastChild, n.alive ? `up ${duration(now - n.epoch)}` : "ended");
}

function showNodes(nodes, cluster, now) {
  const most = Math.max(1, ...nodes.flatMap((n) => [n.assignedStreams, n.fairShare]));
  keyed($("nodes").tBodies[0], nodes, (n) => n.id, nodeRow, (tr, n) => fillNode(tr, n, { cluster, now, most }));
  const leads = cluster.quorumHealthy !== undefined;
  const leader = cluster.log.leaderNode;
  text($("nodes-note"), leads || !leader ? "" : `How far the logs of others lag and who is heard, only the leader knows: see the same page of ${leader}.`);
}

function showMoves(cluster, nodes, now) {
  const moves = [
    ...cluster.recoveries.map((r) => ({
      key: `r ${r.node}@${r.epoch}`,
      what: `Recovery of ${r.node}, epoch ${r.epoch}`,
      how: r.stoppedOn ? `stopped on object ${r.stoppedOn.seq}: ${r.stoppedOn.why}` : r.claimedBy ? `by ${r.claimedBy}` : "not handed out yet",
      streams: r.openStreams,
      since: r.endedAtMs,
      bad: Boolean(r.stoppedOn),
    })),
    ...nodes.filter((n) => n.alive && n.draining && n.assignedStreams).map((n) => ({
      key: `d ${n.id}`,
      what: `Drain of ${n.id}`,
      how: n.drainGaveUp ? `gave up: ${n.drainGaveUp}` : `${number(n.openStreams)} still open`,
      streams: n.assignedStreams,
      since: n.drainingSinceMs,
      bad: Boolean(n.drainGaveUp),
    })),
    ...(cluster.transfers ?? []).map((t) => ({
      key: `t ${t.id}`,
      what: `Transfer of ${t.stream}`,
      how: `${t.fromNode ?? "nobody"} to ${t.toNode}: ${{ pending: "the source lets go", handedOver: "the target may open it" }[t.state] ?? t.state}`,
      streams: 1,
      since: t.sinceMs,
    })),
  ];
  $("moves-none").hidden = moves.length > 0;
  $("moves-box").hidden = moves.length === 0;
  keyed($("moves").tBodies[0], moves, (m) => m.key, () => row(["", "wide", "num", ""]), (tr, m) => {
    const [what, how, streams, since] = tr.children;
    text(what, m.what);
    text(how, m.how);
    how.className = m.bad ? "wide bad" : "wide";
    text(streams, number(m.streams));
    text(since, m.since === undefined ? "–" : `${duration(now - m.since)} ago`);
  });
  const more = cluster.awaitingRecovery - cluster.recoveries.length + cluster.pendingTransfers - (cluster.transfers ?? []).length;
  return more > 0 ? `${number(more)} more recoveries or transfers are under way than are listed.` : "";
}

function showMembers(list, cluster) {
  keyed($("members").tBodies[0], list.members, (m) => m.raftId, () => row(["", "", "", "mono", "num", ""]), (tr, m) => {
    const [id, node, role, address, matched, heard] = tr.children;
    const me = m.node === cluster.answeredBy.node;
    text(id, String(m.raftId));
    text(node, m.node ?? "not registered");
    text(role, m.leader ? "leads" : m.voter ? "votes" : "learns");
    text(address, m.peerAddress);
    text(matched, m.matchedIndex === undefined ? "–" : number(m.matchedIndex));
    matched.className = m.caughtUp === false ? "num warn" : "num";
    text(heard, me ? "this node" : m.heardMsAgo === undefined ? "–" : m.heardMsAgo < 2000 ? "just now" : `${duration(m.heardMsAgo)} ago`);
  });
}

function notices(list) {
  keyed($("notices"), list.filter((n) => n.text), (n) => n.key, () => made("p", "notice"), (p, n) => {
    text(p, n.text);
    level(p, n.bad ? "bad" : "");
  });
}

// No ages in notices: each change of one is read out.
const reasonsOf = (ready, node) => ready.reasons.map((r) => ({
  key: `ready ${r.code}`,
  bad: true,
  text: `${node} is not ready since ${clock(r.sinceMs)} (${r.code}): ${r.detail}`,
}));

function show({ cluster, nodes, members, ready, now }) {
  showSummary(cluster, members);
  showNodes(nodes.nodes, cluster, now);
  showMembers(members, cluster);
  const more = showMoves(cluster, nodes.nodes, now);
  const gone = nodes.nodes.filter((n) => !n.alive).map((n) => n.id);
  notices([
    ...reasonsOf(ready, cluster.answeredBy.node),
    { key: "leader", bad: true, text: cluster.log.leader === undefined && "No leader of the metadata log is known here: appends to open streams go on, but nothing is created, opened or moved until a majority of voters is together." },
    { key: "quorum", bad: true, text: cluster.quorumHealthy === false && "The leader hears no majority of the voters." },
    { key: "unformed", text: cluster.unformed && `No writes yet: ${cluster.unformed}.` },
    { key: "gone", text: gone.length > 0 && `Gone: ${gone.join(", ")}. What they had is served by the others; weir admin remove NODE takes one out for good.` },
    ...cluster.recoveries.filter((r) => r.stoppedOn).map((r) => ({
      key: `stopped ${r.node}@${r.epoch}`,
      bad: true,
      text: `The recovery of ${r.node}, epoch ${r.epoch}, has stopped: ${r.stoppedOn.why}. Restore the object, or give it and what follows it up with POST /admin/recovery/skip.`,
    })),
    { key: "more", text: more },
  ]);
  $("seen").hidden = false;
}

function link(state, says) {
  $("link").dataset.state = state;
  text($("link-text"), says);
  document.body.dataset.stale = state === "stale";
  $("main").setAttribute("aria-busy", String(state === "waiting"));
}

// --- The loop ---

let last = 0; // When the last good answer came, by this browser's clock.
let asked = 0; // Which round is under way; those before it have no say any more.
let timer;
let paused = false;

async function poll() {
  const round = ++asked;
  clearTimeout(timer);
  if (document.hidden || paused) return;
  let next = EVERY_MS;
  try {
    const [ready, ...rest] = await Promise.allSettled(["readyz", "admin/cluster", "admin/nodes", "admin/members"].map(ask));
    if (round !== asked) return;
    const failed = [...rest, ready].find((r) => r.status === "rejected");
    if (failed) {
      explain(failed.reason, ready);
      if (failed.reason instanceof WantsToken) next = undefined;
    } else {
      const [cluster, nodes, members] = rest.map((r) => r.value.body);
      last = Date.now();
      $("token-form").hidden = true;
      $("pause").hidden = false;
      show({ cluster, nodes, members, ready: ready.value.body, now: rest[0].value.now });
      link("live", `live, from ${cluster.answeredBy.node}`);
    }
  } finally {
    // Whatever went wrong in showing, the next round shows anew.
    if (round === asked && next !== undefined) timer = setTimeout(poll, next);
  }
}

/** Why there is nothing new to show. */
function explain(why, ready) {
  if (why instanceof WantsToken) {
    const wrong = token.get() !== null;
    token.forget();
    text($("token-error"), wrong ? "The node does not take this token (any more)." : "");
    link("wants-token", "wants a token");
    notices([]);
    $("seen").hidden = true;
    if ($("token-form").hidden) {
      $("token-form").hidden = false;
      $("token").focus();
    }
    return;
  }
  if (why instanceof Refused) {
    link("starting", "answers, but has nothing to show");
    const reasons = ready.status === "fulfilled" ? reasonsOf(ready.value.body, "The node") : [];
    notices(reasons.length ? reasons : [{ key: "refused", text: `The node answers: ${why.message}` }]);
    return;
  }
  const since = last ? ` since ${clock(last)}` : "";
  link("stale", `no answer${since}`);
  document.title = "Weir: no answer";
  notices([{ key: "stale", bad: true, text: last
    ? `This node has not answered since ${clock(last)}. What stands below is from then. Asking again every second.`
    : "This node does not answer. Asking again every second." }]);
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = $("token").value.trim();
  if (!/^[\x21-\x7e]+$/.test(given)) {
    text($("token-error"), "A token is one line without spaces.");
    return;
  }
  token.set(given);
  $("token").value = "";
  poll();
});

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  text($("pause"), paused ? "Go on" : "Pause");
  if (paused) link("paused", `paused at ${clock(Date.now())}`);
  poll();
});

document.addEventListener("visibilitychange", poll);

$("find").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = $("find-name").value;
  const pairs = [];
  let error = "";
  try {
    const { body: s } = await ask(`admin/streams/${name.split("/").map(encodeURIComponent).join("/")}`);
    const at = s.ownership.node === undefined ? "" : ` at ${s.ownership.node}, epoch ${s.ownership.nodeEpoch}`;
    const state = { released: "released: the next to need it opens it", placed: "placed, not opened", open: "open", awaitingRecovery: "awaits recovery" };
    pairs.push(["owner", `${state[s.ownership.state] ?? s.ownership.state}${at}`], ["stream", `number ${s.id}, epoch ${s.epoch}`],
      ["type", s.contentType], ["kept from", number(s.startOffset)], ["in segments to", number(s.committedOffset)]);
    if (s.tailOffset !== undefined) pairs.push(["durable to", number(s.tailOffset)]);
    if (s.closed) pairs.push(["closed", "for good"]);
    if (s.tombstone) pairs.push(["deleted", "kept for its forks"]);
  } catch (e) {
    error = e instanceof Refused ? e.message : e instanceof WantsToken ? "The node wants a token." : "The node does not answer.";
  }
  text($("find-error"), error);
  $("found").replaceChildren(...pairs.flatMap(([k, v]) => [made("dt", "", k), made("dd", "", v)]));
});

poll();
