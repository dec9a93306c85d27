-- What wrk says on each connection. `job` is set before: run (eight digits that no other run has), kind, batch,
-- connections, queue_urls, groups, heads (in parts) and bodies.
--
-- wrk does not tell which request an answer belongs to, so a lifecycle is not one connection's but that of all: whoever
-- asks next deletes what was received, or else receives what was sent, or else sends. Where there are several queues,
-- they take turns, messages are received in the order in which they were sent, as many later as there are connections,
-- and each tells in its body which queue it is from.

local run = job.run
local signature = string.rep("00000" .. run, 4)
local number = 0
local received = {}
local sent = 0
local asked = 0
local unreceived = 0
local lag = #job.queue_urls > 1 and job.connections or 0
local threads = {}
deleted = 0
refused = 0

local function write(operation, queue, rest)
  number = number + 1
  local head, unique, opening = job.heads[operation], string.format("%012x", number), queue.opening
  return head[1] .. signature .. unique .. head[2] .. run .. "-0000-4000-8000-" .. unique .. head[3]
    .. (#opening + #rest) .. "\r\n\r\n" .. opening .. rest
end

local queues = {}
for index, url in ipairs(job.queue_urls) do
  local mark = #job.queue_urls > 1 and "queue-" .. index .. "-" or ""
  queues[index] = { opening = '{"QueueUrl": "' .. url .. '", ', mark = mark }
end

local function queue_of(count)
  return queues[count % #queues + 1]
end

local function group_of(entry)
  if job.groups == 0 then
    return ""
  end
  return ', "MessageGroupId": "group-' .. number % job.groups
    .. '", "MessageDeduplicationId": "' .. run .. "-" .. number .. "-" .. entry .. '"'
end

local function message(queue, entry)
  local body = job.bodies[(number + entry - 1) % #job.bodies + 1]
  return '"MessageBody": "' .. queue.mark .. body .. '"' .. group_of(entry) .. "}"
end

local batches = {}
local function batch(queue)
  local kept = number % #job.bodies
  if batches[kept] and job.groups == 0 and #queues == 1 then
    return batches[kept]
  end
  local entries = {}
  for entry = 1, job.batch do
    entries[entry] = '{"Id": "' .. entry .. '", ' .. message(queue, entry)
  end
  batches[kept] = '"Entries": [' .. table.concat(entries, ", ") .. "]}"
  return batches[kept]
end

local function send()
  local queue = queue_of(sent)
  sent = sent + 1
  if job.batch == 1 then
    return write("SendMessage", queue, message(queue, 1))
  end
  return write("SendMessageBatch", queue, batch(queue))
end

local function receive()
  local queue = queue_of(asked)
  asked = asked + 1
  return write("ReceiveMessage", queue, '"MaxNumberOfMessages": ' .. job.batch .. "}")
end

local function delete(handles)
  deleted = deleted + #handles
  if job.batch == 1 then
    return write("DeleteMessage", handles.queue, '"ReceiptHandle": "' .. handles[1] .. '"}')
  end
  local entries = {}
  for index, handle in ipairs(handles) do
    entries[index] = '{"Id": "' .. index .. '", "ReceiptHandle": "' .. handle .. '"}'
  end
  return write("DeleteMessageBatch", handles.queue, '"Entries": [' .. table.concat(entries, ", ") .. "]}")
end

if job.kind == "send" then
  request = send
else
  function request()
    if #received > 0 then
      return delete(table.remove(received))
    elseif unreceived > lag then
      unreceived = unreceived - 1
      return receive()
    end
    return send()
  end

  function response(status, headers, body)
    if status ~= 200 or string.find(body, '"Failed": ?%[ ?{') then
      refused = refused + 1
      return
    end
    local handles = {}
    for handle in string.gmatch(body, '"ReceiptHandle": ?"([^"]+)"') do
      handles[#handles + 1] = handle
    end
    if #handles > 0 then
      handles.queue = queues[tonumber(string.match(body, '"Body": ?"queue%-(%d+)%-') or 1)]
      received[#received + 1] = handles
    elseif string.find(body, '"MD5OfMessageBody"', 1, true) then
      unreceived = unreceived + 1
    end
  end
end

function setup(thread)
  threads[#threads + 1] = thread
end

function done(summary, latency, requests)
  local failed, messages = summary.errors.status, job.batch * summary.requests
  if job.kind ~= "send" then
    messages = 0
    for _, thread in ipairs(threads) do
      failed = failed + thread:get("refused")
      messages = messages + thread:get("deleted")
    end
  end
  local failure = "null"
  if failed > 0 or summary.requests == 0 then
    failure = string.format('"the server refused %d of %d requests"', failed, summary.requests)
  end
  io.write(string.format(
    'REPORT {"requests": %d, "messages": %d, "seconds": %.6f, "failure": %s, '
      .. '"latency": {"p50_ms": %.3f, "p90_ms": %.3f, "p99_ms": %.3f, "max_ms": %.3f}}\n',
    summary.requests, messages, summary.duration / 1e6, failure,
    latency:percentile(50) / 1e3, latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3
  ))
end
