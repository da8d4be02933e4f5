// moorage-egress: the network of one sandbox, outside of it. One process a sandbox, started when a
// name is first asked for inside (docs/decisions/0360): what one sandbox does to it, or makes it
// read, concerns no other. It lives as long as the sandbox's warden holds the line, and does not
// need the daemon, so a download outlives it.
//
//   moorage-egress --control-fd N --uid ID [--join FILE]...
//
// As `moorage-egress git-over-ssh` it is another program: see ssh/ssh_bridge.h.
//
// N is the listening socket of control.h; FILEs are those of its control group. It goes to the
// background, and exits with 0 once it takes messages there. Settings and the line come in these.
// Until then, and whenever something is missing, nothing passes.
#include <fcntl.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "egress/confine.h"
#include "egress/control.h"
#include "egress/gateway.h"
#include "egress/ssh/ssh_bridge.h"

namespace moorage::egress {
namespace {

struct Options {
  int control_fd = -1;
  uint32_t uid = 0;
  std::vector<std::string> join_files;
};

template <typename Number>
void read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(Code::invalid_argument, "not a number: " + std::string(text));
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--control-fd") {
      read_number(argv[i + 1], options.control_fd);
    } else if (name == "--uid") {
      read_number(argv[i + 1], options.uid);
    } else if (name == "--join") {
      options.join_files.emplace_back(argv[i + 1]);
    }
  }
  if (argc % 2 == 0 || options.control_fd < 3 || options.uid == 0) {
    throw Error(Code::invalid_argument,
                "usage: moorage-egress --control-fd N --uid ID [--join FILE]...",
                "the daemon starts this program; it is not meant to be run by hand");
  }
  return options;
}

void keep_only(int fd) {
  if (fd > STDERR_FILENO + 1) close_range(STDERR_FILENO + 1, static_cast<unsigned>(fd) - 1, 0);
  close_range(static_cast<unsigned>(fd) + 1, ~0U, 0);
  base::check(fcntl(fd, F_SETFD, FD_CLOEXEC), "set up a descriptor");
}

void run(const Options& options) {
  base::fill_standard_fds();
  keep_only(options.control_fd);
  for (const std::string& file : options.join_files)
    base::write_all(base::open_file(file, O_WRONLY).get(), "0");
  signal(SIGPIPE, SIG_IGN);
  // Reads its configuration file and all tables now, while there are files.
  OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS | OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr);
  const Fd null(base::check(open("/dev/null", O_RDWR | O_CLOEXEC), "open /dev/null"));
  base::Pipe ready = base::make_pipe();
  if (base::check(fork(), "create a process") > 0) {
    ready.write_end.reset();
    // Nothing comes if the child ends first; it has said why.
    _exit(base::read_up_to(ready.read_end.get(), 1).empty() ? 1 : 0);
  }
  setsid();
  confine({.uid = options.uid});

  base::Loop loop;
  Gateway gateway(loop, [&loop] { loop.stop(); });
  const Control control(loop, Fd(options.control_fd), gateway);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) dup2(null.get(), fd);
  base::write_all(ready.write_end.get(), "r");
  ready = {};
  loop.run();
}

}  // namespace
}  // namespace moorage::egress

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string_view(argv[1]) == "git-over-ssh")
      return moorage::egress::run_ssh_bridge({argv + 2, argv + argc});
    moorage::egress::run(moorage::egress::read_options(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moorage-egress: %s\n", error.what());
    return 1;
  }
}
