#include "warden/output/stream_sink.h"

#include <string.h>

#include <algorithm>
#include <boost/json.hpp>

#include "warden/io/connect_protocol.h"

namespace moorage::warden {
namespace {

std::string_view field_name(base::FrameKind kind) {
  if (kind == base::FrameKind::standard_error) return "stderr";
  return kind == base::FrameKind::terminal ? "pty" : "stdout";
}

// The texts are those of Go's os/exec, which E2B clients show.
std::string end_event(const ExecEnd& end) {
  boost::json::object event{{"exitCode", end.code}, {"exited", end.signal == 0}};
  std::string status = "exit status " + std::to_string(end.code);
  if (end.signal != 0) {
    const char* name = ::sigdescr_np(end.signal);
    status = "signal: " + lower_case(name ? name : std::to_string(end.signal));
  }
  event["status"] = status;
  if (end.code != 0) event["error"] = status;
  boost::json::object outer{{"event", boost::json::object{{"end", event}}}};
  return boost::json::serialize(outer);
}

}  // namespace

void StreamSink::add_listener(const std::shared_ptr<Connection>& connection,
                              std::chrono::seconds keepalive) {
  connection->begin_stream();
  if (pid_ != 0) connection->send_envelope(start_event(pid_));
  if (!end_event_.empty()) return send_end(*connection);
  Listener& listener = listeners_.emplace_back(loop_, connection, keepalive);
  connection->on_relief([this] {
    if (ready()) notify_ready();
  });
  arm_keepalive(listener);
}

void StreamSink::fail(const Error& error) {
  last_envelope_ = end_of_stream_json(error);
  end_all();
}

void StreamSink::started(uint32_t pid, bool /*merged*/) {
  pid_ = pid;
  send_all(start_event(pid));
}

bool StreamSink::ready() const {
  return std::none_of(listeners_.begin(), listeners_.end(), [](const Listener& listener) {
    auto connection = listener.connection.lock();
    return connection && connection->congested();
  });
}

void StreamSink::write(base::FrameKind kind, std::string_view bytes) {
  std::erase_if(listeners_, [](const Listener& listener) {
    auto connection = listener.connection.lock();
    return !connection || connection->closed();
  });
  if (listeners_.empty()) return;
  send_all("{\"event\":{\"data\":{\"" + std::string(field_name(kind)) + "\":\"" +
           encode_base64(bytes) + "\"}}}");
}

void StreamSink::end(const ExecEnd& end) {
  end_event_ = end_event(end);
  if (end.kind == "timed_out") {
    last_envelope_ = end_of_stream_json(
        Error(Code::deadline_exceeded, "the command was killed: deadline exceeded"));
  }
  end_all();
}

void StreamSink::end_all() {
  for (Listener& listener : listeners_) {
    auto connection = listener.connection.lock();
    if (!connection) continue;
    connection->on_relief({});
    send_end(*connection);
  }
  listeners_.clear();
}

void StreamSink::send_end(Connection& connection) const {
  if (!end_event_.empty()) connection.send_envelope(end_event_);
  connection.end_stream(last_envelope_);
}

void StreamSink::send_all(std::string_view json) {
  for (Listener& listener : listeners_) {
    auto connection = listener.connection.lock();
    if (!connection) continue;
    connection->send_envelope(json);
    arm_keepalive(listener);
  }
}

void StreamSink::arm_keepalive(Listener& listener) {
  listener.keepalive.start(listener.keepalive_interval, [this, &listener] {
    auto connection = listener.connection.lock();
    if (!connection || connection->closed()) return;
    connection->send_envelope("{\"event\":{\"keepalive\":{}}}");
    arm_keepalive(listener);
  });
}

}  // namespace moorage::warden
