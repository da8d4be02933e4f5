// The daemon's HTTP server with all its routes, a store and one workspace, and bytes from a client.
// It cannot start a sandbox or reach an upstream; everything before that is product code.
#include <poll.h>
#include <sys/socket.h>

#include <memory>

#include "base/log.h"
#include "fuzz.h"
#include "served.h"
#include "state_db/tables/workspaces.h"
#include "wired.h"

namespace moorage {
namespace {

using daemon::Served;
using daemon::Wired;

constexpr int kRunsOfOneStore = 500;
constexpr int kPatienceMs = 100;  // a request may wait for something: then leave
constexpr int kLifeSignMs = 20'000;

struct Daemon {
  Wired wired;
  Served served;
  base::WorkspaceId workspace;

  Daemon() : served(limits()), workspace(wired.make_workspace("work", 0)) {
    const auto exec = wired.make_exec(workspace);
    wired.write_frame(exec, base::FrameKind::standard_output, "some output\n");
    daemon::add_all_routes(served.router(), wired.api(), wired.info());
    served.start();
  }
  static daemon::Limits limits() {
    daemon::Limits limits;
    limits.keep_alive = std::chrono::milliseconds(20);  // ends a stream without a reader soon
    limits.drain = std::chrono::milliseconds(30'000);
    return limits;
  }
  bool whole() {
    const auto row = state_db::WorkspaceTable(wired.store()).find(workspace);
    return row && row->state == state_db::WorkspaceState::ready;
  }
};

void expect_life(Daemon& daemon) {
  daemon::Wire wire = daemon.served.connect();
  wire.send("GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n");
  fuzz::require(!wire.read_some(kLifeSignMs).empty(), "the daemon answers the next client");
}

void speak(Daemon& daemon, std::string_view bytes) {
  daemon::Wire wire = daemon.served.connect();
  wire.try_send(bytes);
  shutdown(wire.fd(), SHUT_WR);
  for (int pieces = 0; pieces < 16 && base::wait_readable(wire.fd(), kPatienceMs); ++pieces) {
    if (wire.read_some().empty()) return;
  }
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  static std::unique_ptr<Daemon> daemon;
  static int runs = 0;
  if (!daemon) {
    base::set_up_log({.level = base::LogLevel::error, .json = false, .file = "/dev/null"});
    daemon = std::make_unique<Daemon>();
  }
  speak(*daemon, {reinterpret_cast<const char*>(data), size});
  if (!daemon->whole() || ++runs % kRunsOfOneStore == 0) {
    expect_life(*daemon);
    daemon.reset();
  }
  return 0;
}
