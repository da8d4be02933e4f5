// A parsed and validated Start request: process.StartRequest as JSON, with the headers of
// backends/envd_client.h. Every error is invalid_argument.
#pragma once

#include <chrono>

#include "warden/exec.h"
#include "warden/io/connection.h"
#include "warden/output/journal_sink.h"

namespace boost::json {
class object;
}

namespace moorage::warden {

inline constexpr size_t kMaxTagBytes = 128;

struct StartRequest {
  Command command;
  ExecOptions options;
  Fd journal;  // none: output goes to the stream
  JournalRoom room;
  std::chrono::seconds keepalive{90};
};

StartRequest read_start_request(const boost::json::object& body, HttpRequest& request);
TerminalSize read_terminal_size(const boost::json::object& pty);
std::chrono::seconds keepalive_interval(const HttpRequest& request);

}  // namespace moorage::warden
