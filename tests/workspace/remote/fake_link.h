// Plays the keeper of a moorage-link: answers its requests on a unix socket, one at a time.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/wire/link_config.h"

namespace moorage::workspace {

class FakeLink {
 public:
  explicit FakeLink(const std::string& directory)
      : path_(directory + "/link.sock"),
        listener_(base::listen_unix(path_, 0600)),
        stop_(base::check(eventfd(0, EFD_CLOEXEC), "create an eventfd")),
        thread_([this] { run(); }) {}
  ~FakeLink() {
    const uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof one) < 0) abort();
    thread_.join();
  }
  const std::string& path() const { return path_; }

  // Set before the request that they answer. They run on the link's thread.
  std::function<void()> on_sync = [] {};
  std::function<void(const std::string& body)> on_changed = [](const std::string&) {};
  void cut(const std::string& reason) {  // from now on the machine is not reached; empty: it is
    const std::lock_guard lock(mutex_);
    reason_ = reason;
  }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void run() {
    for (;;) {
      pollfd entries[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      if (::poll(entries, 2, -1) < 0) continue;
      if (entries[1].revents != 0) return;
      const base::Fd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      try {
        if (peer) serve(peer.get());
      } catch (const Error&) {
        // The client has left.
      }
    }
  }
  void serve(int peer) {
    std::string text;
    size_t head = std::string::npos;
    size_t size = 0;
    while (head == std::string::npos || text.size() < head + 4 + size) {
      const std::string bytes = base::receive_with_fds(peer, 64 << 10).bytes;
      if (bytes.empty()) return;
      text += bytes;
      head = text.find("\r\n\r\n");
      const size_t length = text.find("Content-Length: ");
      if (head != std::string::npos) size = std::stoul(text.substr(length + 16));
    }
    const std::string path =
        text.substr(text.find(' ') + 1, text.find(" HTTP") - text.find(' ') - 1);
    std::string reason;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(path);
      reason = reason_;
    }
    if (path == "/moorage/remote") return answer(peer, "200 OK", status(reason));
    if (!reason.empty()) {
      return answer(peer, "503 Error",
                    R"({"code":"unavailable","message":")" + reason + R"(","hint":""})");
    }
    if (path == "/moorage/sync") on_sync();
    if (path == "/moorage/changed") on_changed(text.substr(head + 4));
    answer(peer, "200 OK", "{}");
  }
  static std::string status(const std::string& reason) {
    base::LinkStatus status;
    status.connected = status.runs = reason.empty();
    status.overlay = "user";
    status.behind_ms = 12'345;
    status.reason = reason;
    return base::link_status_text(status);
  }
  static void answer(int peer, const std::string& status, const std::string& body) {
    base::write_all(peer, "HTTP/1.1 " + status + "\r\nContent-Length: " +
                              std::to_string(body.size()) + "\r\n\r\n" + body);
  }

  const std::string path_;
  base::Fd listener_;
  base::Fd stop_;
  std::mutex mutex_;
  std::string reason_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace moorage::workspace
