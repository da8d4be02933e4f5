"""A model behind TLS that fixes a failing test: it speaks the APIs of Anthropic, OpenAI (Responses and Chat) and Google.

It has one plan: call the shell tool that the agent offers with COMMAND, then say that it is done. What an agent offers
is read from its request, so that tools may have any name.
"""

import base64
import gzip
import hashlib
import http.server
import json
import re
import socketserver
import struct
import threading
import zlib

SHELL = re.compile(r"^(bash|shell|shell_command|local_shell|exec_command|run_shell_command|run_commands|execute_command|run_in_terminal)$", re.I)
WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
DONE = "The test passes now."


def shell_call(tools, command):
    """(name, arguments) of a call to the shell tool among `tools`, (name, JSON schema of its input); None: there is none."""
    for name, schema in tools:
        if not SHELL.match(name or ""):
            continue
        properties = schema.get("properties", {})
        arguments = {}
        for field, kind in properties.items():
            if field in ("command", "cmd", "script", "commands"):
                arguments[field] = ["bash", "-lc", command] if kind.get("type") == "array" and field != "commands" else command
                if field == "commands":
                    arguments[field] = [command] if kind.get("type") == "array" else command
        for field in schema.get("required", []):
            if field not in arguments:
                kind = properties.get(field, {}).get("type")
                arguments[field] = {"boolean": False, "integer": 60, "number": 60}.get(kind, "fix the test")
        return name, arguments
    return None


def anthropic_tools(body):
    return [(tool.get("name"), tool.get("input_schema", {})) for tool in body.get("tools", [])]


def anthropic_used(body):
    return any(isinstance(message.get("content"), list) and any(block.get("type") == "tool_result" for block in message["content"])
               for message in body.get("messages", []))


def anthropic(body, command):
    """The events of one answer."""
    call = None if anthropic_used(body) else shell_call(anthropic_tools(body), command)
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model", "m"), "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}}
    block = ({"type": "tool_use", "id": "toolu_1", "name": call[0], "input": {}} if call else {"type": "text", "text": ""})
    delta = ({"type": "input_json_delta", "partial_json": json.dumps(call[1])} if call else {"type": "text_delta", "text": DONE})
    stop = "tool_use" if call else "end_turn"
    events = [("message_start", {"message": message}),
              ("content_block_start", {"index": 0, "content_block": block}),
              ("content_block_delta", {"index": 0, "delta": delta}),
              ("content_block_stop", {"index": 0}),
              ("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 20}}),
              ("message_stop", {})]
    whole = {**message, "stop_reason": stop,
             "content": [{**block, "input": call[1]} if call else {"type": "text", "text": DONE}]}
    return [(name, {"type": name, **data}) for name, data in events], whole


def responses_tools(body):
    """All tools of a request. Codex puts them into its input, and into namespaces."""
    groups = [body] + [item for item in body.get("input", []) if isinstance(item, dict)]
    while groups:
        for tool in groups.pop().get("tools") or []:
            groups.append(tool)
            yield tool


def responses_call(body, command):
    """The members of a call's item; None: no tool fits."""
    tools = list(responses_tools(body))
    call = shell_call([(tool.get("name"), tool.get("parameters") or {}) for tool in tools if tool.get("type") == "function"], command)
    if call:
        return {"type": "function_call", "name": call[0], "arguments": json.dumps(call[1])}
    if any(tool.get("type") == "custom" and tool.get("name") == "exec" for tool in tools):  # JavaScript that calls tools
        return {"type": "custom_tool_call", "name": "exec", "input": f"text(await tools.exec_command({json.dumps({'cmd': command})}));"}
    return None


def responses(body, command):
    used = any(item.get("type") in ("function_call_output", "custom_tool_call_output") for item in body.get("input", [])
               if isinstance(item, dict))
    call = None if used else responses_call(body, command)
    item = ({**call, "id": "fc_1", "call_id": "call_1", "status": "completed"} if call else
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": DONE, "annotations": []}]})
    response = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": body.get("model", "m"),
                "output": [item], "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
                                            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 30}}
    events = [("response.created", {"response": {**response, "status": "in_progress", "output": []}}),
              ("response.output_item.added", {"output_index": 0, "item": item}),
              ("response.output_item.done", {"output_index": 0, "item": item}),
              ("response.completed", {"response": response})]
    return [(name, {"type": name, **data}) for name, data in events], response


def chat(body, command):
    tools = [(tool["function"].get("name"), tool["function"].get("parameters") or {}) for tool in body.get("tools", [])
             if "function" in tool]
    used = any(message.get("role") == "tool" for message in body.get("messages", []))
    call = None if used else shell_call(tools, command)
    message = ({"role": "assistant", "content": None,
                "tool_calls": [{"index": 0, "id": "call_1", "type": "function",
                                "function": {"name": call[0], "arguments": json.dumps(call[1])}}]} if call else
               {"role": "assistant", "content": DONE})
    head = {"id": "chat_1", "created": 1, "model": body.get("model", "m")}
    usage = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
    finish = "tool_calls" if call else "stop"
    chunks = [{**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
              {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
              {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}]
    whole = {**head, "object": "chat.completion", "usage": usage,
             "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return [(None, chunk) for chunk in chunks] + [(None, "[DONE]")], whole


def gemini(body, command):
    tools = [(tool.get("name"), tool.get("parametersJsonSchema") or tool.get("parameters") or {})
             for group in body.get("tools", []) for tool in group.get("functionDeclarations", [])]
    used = any("functionResponse" in part for content in body.get("contents", []) for part in content.get("parts", []))
    call = None if used else shell_call(tools, command)
    part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": DONE}
    if not call and body.get("generationConfig", {}).get("responseMimeType") == "application/json":
        part = {"text": "{}"}
    whole = {"candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [part]}}],
             "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 20, "totalTokenCount": 30}}
    return [(None, whole)], whole


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, content_type, data):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.server.note(self, {})
        if not self.server.knows(self):
            return
        if self.server.websockets and self.headers.get("Upgrade", "").lower() == "websocket":
            return self.websocket()
        if self.path.startswith("/v1/models") or self.path.startswith("/v1beta/models"):
            return self.reply(200, "application/json", b'{"data":[],"models":[],"object":"list"}')
        if self.path.startswith("/api/hello"):
            return self.reply(200, "application/json", b'{"message":"hello"}')
        self.reply(404, "application/json", b'{"error":{"type":"not_found_error","message":"not here"}}')

    do_HEAD = do_GET

    def body(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        encoding = self.headers.get("Content-Encoding", "")
        data = gzip.decompress(data) if encoding == "gzip" else zlib.decompress(data) if encoding == "deflate" else data
        try:
            return json.loads(data or b"{}")
        except ValueError:
            return {}

    def do_POST(self):
        body = self.body()
        self.server.note(self, body)
        if not self.server.knows(self):
            return
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens") or path.endswith(":countTokens"):
            return self.reply(200, "application/json", b'{"input_tokens":10,"totalTokens":10}')
        for end, answer in (("/messages", anthropic), ("/responses", responses), ("/chat/completions", chat),
                            (":streamGenerateContent", gemini), (":generateContent", gemini)):
            if path.endswith(end):
                events, whole = answer(body, self.server.command)
                streams = body.get("stream") or path.endswith(":streamGenerateContent")
                return self.stream(events) if streams else self.reply(200, "application/json", json.dumps(whole).encode())
        self.reply(404, "application/json", b'{"error":{"type":"not_found_error","message":"not here"}}')

    def websocket(self):
        """RFC 6455: each message of the client is a request of the Responses API, each event of its answer a message."""
        accepted = hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + WEBSOCKET).digest()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"),
                            ("Sec-WebSocket-Accept", base64.b64encode(accepted).decode())):
            self.send_header(name, value)
        self.end_headers()
        self.server.upgraded += 1
        self.close_connection = True
        while (message := self.message()) is not None:
            body = json.loads(message)
            self.server.note(self, body)
            for _, event in responses(body, self.server.command)[0]:
                self.frame(1, json.dumps(event).encode())

    def frame(self, opcode, data):
        size = bytes([len(data)]) if len(data) < 126 else struct.pack(">BH", 126, len(data)) if len(data) < 1 << 16 else \
            struct.pack(">BQ", 127, len(data))
        self.wfile.write(bytes([0x80 | opcode]) + size + data)

    def message(self):
        """The text of the next one; None: it was closed."""
        text = b""
        while head := self.rfile.read(2):
            size = head[1] & 127
            size = int.from_bytes(self.rfile.read({126: 2, 127: 8}[size]), "big") if size > 125 else size
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(size)))
            opcode = head[0] & 15
            if opcode == 8:
                return None
            if opcode == 9:
                self.frame(10, data)
            if opcode < 8:
                text += data
                if head[0] & 0x80:
                    return text
        return None

    def stream(self, events):
        text = ""
        for name, data in events:
            text += f"event: {name}\n" if name else ""
            text += "data: " + (data if isinstance(data, str) else json.dumps(data)) + "\n\n"
        self.reply(200, "text/event-stream", text.encode())


class ModelServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """`seen` lists (host, method, path) of every request. With a `key`, those of `unknown` came without it and got 401."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address, context, command):
        super().__init__((address, 443), Handler)
        self.command = command
        self.key = None
        self.seen = []
        self.unknown = []
        self.websockets = False
        self.upgraded = 0
        self.bodies = []
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def knows(self, request):
        """Whether the request has the key; answers it otherwise."""
        given = [request.headers.get(name, "") for name in ("X-Api-Key", "X-Goog-Api-Key", "Authorization")]
        if self.key is None or self.key in given or f"Bearer {self.key}" in given:
            return True
        self.unknown.append((request.headers.get("Host"), request.command, request.path, given))
        request.reply(401, "application/json", b'{"error":{"type":"authentication_error","message":"invalid key"}}')
        return False

    def note(self, request, body):
        self.seen.append((request.headers.get("Host"), request.command, request.path))
        self.bodies.append(body)

    def handle_error(self, request, client_address):
        pass

    def close(self):
        self.shutdown()
        self.server_close()
        self.thread.join(5)
