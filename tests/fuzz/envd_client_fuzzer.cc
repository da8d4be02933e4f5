// The daemon's side of the envd API: a sandbox answers a call with the input.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "backends/envd_client.h"
#include "base/os/fd.h"
#include "fuzz.h"

namespace moorage {
namespace {

constexpr std::chrono::milliseconds kDeadline{10'000};

// Answers each connection with the given bytes, and closes it.
class Sandbox {
 public:
  Sandbox() : listener_(base::listen_unix(path, 0600)) {
    std::thread([this] {
      for (;;) serve_one();
    }).detach();
  }
  const std::string path = fuzz::scratch_directory() + "/envd.sock";

  void set_answer(std::string answer) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }

 private:
  void serve_one() {
    base::wait_readable(listener_.get(), -1);
    const base::Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    base::receive_with_fds(client.get(), 64 << 10);
    {
      const std::lock_guard lock(mutex_);
      send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
    }
    shutdown(client.get(), SHUT_WR);
    char left[4096];  // until the caller disconnects
    while (recv(client.get(), left, sizeof left, 0) > 0) continue;
  }

  base::Fd listener_;
  std::mutex mutex_;
  std::string answer_;
};

void call(backends::EnvdClient& client, uint8_t what) {
  switch (what % 6) {
    case 0:
    case 1: {
      static const base::Fd journal(memfd_create("journal", MFD_CLOEXEC));
      backends::StartRequest request;
      request.tag = "ex_1";
      request.argv = {"true"};
      request.journal_fd = journal.get();
      client.start(request, kDeadline);
      return;
    }
    case 2:
      client.list(kDeadline);
      return;
    case 3:
      client.send_input("ex_1", 0, "input", kDeadline);
      return;
    case 4:
      client.healthy(kDeadline);
      return;
    default:
      client.close_input("ex_1");
  }
}

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  static Sandbox& sandbox = *new Sandbox;
  fuzz::Script script(data, size);
  const uint8_t what = script.byte();
  // A body gets a header here, as few inputs would find a valid one.
  std::string head;
  if (what & 128) {
    head =
        "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(script.rest().size()) + "\r\n\r\n";
  }
  sandbox.set_answer(head + std::string(script.rest()));
  backends::EnvdClient client(backends::Endpoint{sandbox.path});
  const auto began = std::chrono::steady_clock::now();
  fuzz::refused([&] { call(client, what & 127); });
  fuzz::require(std::chrono::steady_clock::now() - began < kDeadline, "no call outlasts its peer");
  return 0;
}
