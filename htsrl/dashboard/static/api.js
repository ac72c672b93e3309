// Questions to the server. Addresses are relative: the token is part of the page's own.

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, cache: "no-store", credentials: "omit" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
}

function post(path, question) {
  return ask(path, { method: "POST", body: JSON.stringify(question), headers: { "content-type": "application/json" } });
}

export const askRows = (since) => ask(`api/runs?since=${since}`);
export const askSweeps = () => ask("api/sweeps");
export const askCurves = (metric, known, buckets) => post("api/curves", { metric, known, buckets });
export const askMetrics = (runs) => post("api/metrics", { runs });
export const askDetails = (id) => ask(`api/run/${id}`);
export const askTimeline = (id) => ask(`api/run/${id}/timeline`);
export const videoAddress = (id, number) => `video/${id}/${number}`;
