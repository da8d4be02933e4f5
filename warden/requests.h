// Requests, parsed and validated: proto3 JSON and the headers of backends/envd_client.h, read with
// limits. Every error is invalid_argument.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "warden/exec.h"
#include "warden/io/connection.h"
#include "warden/output/journal_sink.h"

namespace boost::json {
class object;
}

namespace moorage::warden {

boost::json::object parse_object(std::string_view text);  // empty text gives an empty object
const boost::json::object& member_object(const boost::json::object& body, std::string_view name);
std::optional<uint64_t> read_offset(const boost::json::object& body);  // "offset", if present
// As clients write signals: "SIGNAL_SIGTERM" (E2B), "SIGTERM", "TERM", or a number.
std::optional<int> signal_number(std::string_view name);

// process.StartRequest.
struct StartRequest {
  Command command;
  ExecOptions options;
  Fd journal;          // none: output goes to the stream
  bool spool = false;  // or into a new file of the spool, named by the tag
  JournalRoom room;
  std::chrono::seconds keepalive{90};
};
StartRequest read_start_request(const boost::json::object& body, HttpRequest& request);
// The journal in the spool, which must be new: already_exists means that this exec has already run.
Fd create_spool_file(int spool, const std::string& tag);
TerminalSize read_terminal_size(const boost::json::object& pty);
std::chrono::seconds keepalive_interval(const HttpRequest& request);

}  // namespace moorage::warden
