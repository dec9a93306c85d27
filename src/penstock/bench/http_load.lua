-- What wrk says on each connection. `job` is set before: kind, batch, queue_url, heads (in parts) and bodies.
--
-- wrk does not tell which request an answer belongs to, so a lifecycle is not one connection's but that of all: whoever
-- asks next deletes what was received, or else receives what was sent, or else sends.

math.randomseed(os.time())
local run = string.format("%08x", math.random(0, 0x7fffffff))
local signature = string.rep(string.format("%013x", math.random(0, 0x7fffffff)), 4)
local number = 0
local received = {}
local unreceived = 0
local threads = {}
deleted = 0
refused = 0

local function sized(body)
  return #body .. "\r\n\r\n" .. body
end

local function write(operation, content)
  number = number + 1
  local head, unique = job.heads[operation], string.format("%012x", number)
  return head[1] .. signature .. unique .. head[2] .. run .. "-0000-4000-8000-" .. unique .. head[3] .. content
end

local queue = '{"QueueUrl": "' .. job.queue_url .. '", '
local sends = {}
for first = 1, #job.bodies do
  if job.batch == 1 then
    sends[first] = sized(queue .. '"MessageBody": "' .. job.bodies[first] .. '"}')
  else
    local entries = {}
    for index = 1, job.batch do
      local body = job.bodies[(first + index - 2) % #job.bodies + 1]
      entries[index] = '{"Id": "' .. index .. '", "MessageBody": "' .. body .. '"}'
    end
    sends[first] = sized(queue .. '"Entries": [' .. table.concat(entries, ", ") .. "]}")
  end
end
local receive = sized(queue .. '"MaxNumberOfMessages": ' .. job.batch .. "}")

local function send()
  return write(job.batch == 1 and "SendMessage" or "SendMessageBatch", sends[number % #sends + 1])
end

local function delete(handles)
  deleted = deleted + #handles
  if job.batch == 1 then
    return write("DeleteMessage", sized(queue .. '"ReceiptHandle": "' .. handles[1] .. '"}'))
  end
  local entries = {}
  for index, handle in ipairs(handles) do
    entries[index] = '{"Id": "' .. index .. '", "ReceiptHandle": "' .. handle .. '"}'
  end
  return write("DeleteMessageBatch", sized(queue .. '"Entries": [' .. table.concat(entries, ", ") .. "]}"))
end

if job.kind == "send" then
  request = send
else
  function request()
    if #received > 0 then
      return delete(table.remove(received))
    elseif unreceived > 0 then
      unreceived = unreceived - 1
      return write("ReceiveMessage", receive)
    end
    return send()
  end

  function response(status, headers, body)
    if status ~= 200 or string.find(body, '"Failed": ?%[ ?{') then
      refused = refused + 1
    elseif string.find(body, '"MD5OfMessageBody"', 1, true) then
      unreceived = unreceived + 1
    else
      local handles = {}
      for handle in string.gmatch(body, '"ReceiptHandle": ?"([^"]+)"') do
        handles[#handles + 1] = handle
      end
      if #handles > 0 then
        received[#received + 1] = handles
      end
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
