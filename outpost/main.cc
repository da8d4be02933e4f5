// moorage-outpost: sandboxes on a machine that is not ours, one directory DIR of it (directory.h).
// Static; moorage-link puts it there and talks to it by base/wire/outpost_requests.h.
//
//   connect --dir DIR --name NAME --generation G [--text]
//                                a stream on standard input and output; with --text, the last
//                                argument, as lines (base/wire/text_stream.h)
//   serve                        started by connect
//   list --dir DIR               shows everything there, as JSON
//   remove --dir DIR --name NAME
//                                ends and removes a sandbox
//   clean --dir DIR              removes everything that no sandbox needs
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/os/fd.h"
#include "outpost/connect.h"
#include "outpost/housekeeping.h"
#include "outpost/serve.h"

namespace moorage::outpost {
namespace {

struct Options {
  std::string command;
  std::string directory;
  std::string name;
  uint64_t generation = 0;
  int listen_fd = -1;
  bool text = false;
};

template <typename Number>
Number number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(Code::invalid_argument, "not a number: " + std::string(text));
  return value;
}

Options read_options(int argc, char** argv) {
  Options options;
  if (argc > 1) options.command = argv[1];
  // Last, as a provider's shell may append it.
  if (argc > 2 && std::string_view(argv[argc - 1]) == "--text") {
    options.text = true;
    --argc;
  }
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--dir") {
      options.directory = argv[i + 1];
    } else if (name == "--name") {
      options.name = argv[i + 1];
    } else if (name == "--generation") {
      options.generation = number<uint64_t>(argv[i + 1]);
    } else if (name == "--listen-fd") {
      options.listen_fd = number<int>(argv[i + 1]);
    } else {
      throw Error(Code::invalid_argument, "unknown option " + std::string(name));
    }
  }
  if (argc % 2 != 0 || options.directory.empty()) {
    throw Error(Code::invalid_argument,
                "usage: moorage-outpost connect|list|remove|clean --dir DIR [--name NAME]"
                " [--generation G] [--text]");
  }
  return options;
}

void serve(const Options& options) {
  signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGHUP, SIGINT}) signal(number, SIG_IGN);
  if (options.listen_fd < 3)
    throw Error(Code::invalid_argument, "connect starts serve, with a socket");
  base::check(fcntl(options.listen_fd, F_SETFD, FD_CLOEXEC), "set up a socket");
  Server({options.directory, options.name, options.generation, Fd(options.listen_fd)}).run();
}

void run(const Options& options) {
  if (options.command == "connect")
    return connect_to_serve({options.directory, options.name, options.generation, options.text});
  if (options.command == "serve") return serve(options);
  // Nothing to list or remove: then nothing is made either.
  struct stat status {};
  const bool there = lstat(options.directory.c_str(), &status) == 0;
  if (options.command == "list") {
    const std::string text =
        there ? list(Directory(options.directory)) : R"({"sandboxes":[],"trees":[]})";
    return base::write_all(STDOUT_FILENO, text + "\n");
  }
  if (options.command == "remove") {
    if (there) remove_sandbox(Directory(options.directory), options.name);
  } else if (options.command == "clean") {
    if (there) clean(Directory(options.directory));
  } else {
    throw Error(Code::invalid_argument, "unknown command '" + options.command + "'");
  }
}

}  // namespace
}  // namespace moorage::outpost

int main(int argc, char** argv) {
  try {
    moorage::base::fill_standard_fds();
    umask(077);
    moorage::outpost::run(moorage::outpost::read_options(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moorage-outpost: %s\n", error.what());
    return 1;
  }
}
