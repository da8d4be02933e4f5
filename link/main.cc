// moorage-link: joins a sandbox on another machine to a socket here. The daemon starts
//
//   moorage-link keeper --bootstrap PATH --config FILE   keeper.h
//   moorage-link remove --config FILE   removes the sandbox there, without a keeper
//   moorage-link list --config FILE     prints the machines of the store that the configuration's
//       name is of, a line of JSON each: {"id","sandbox","generation","state"}
//   moorage-link salvage --config FILE --into DIRECTORY   recovery/salvage.h; prints JSON
//
// and the keeper starts
//
//   moorage-link worker --config FILE --line N   worker.h
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/wire/link_config.h"
#include "link/keeper.h"
#include "link/machine.h"
#include "link/provider_key.h"
#include "link/recovery/salvage.h"
#include "link/worker.h"

namespace moorage::link {
namespace {

constexpr std::chrono::seconds kRemoveDeadline{60};
constexpr std::chrono::seconds kListDeadline{30};

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    if (argc > 1) command_ = argv[1];
    for (int i = 2; i + 1 < argc; i += 2) values_[argv[i]] = argv[i + 1];
    if (argc < 2 || argc % 2 != 0) {
      throw Error(Code::invalid_argument,
                  "usage: moorage-link keeper|worker|remove|list|salvage --config FILE ...",
                  "the daemon starts this program; it is not meant to be run by hand");
    }
  }
  const std::string& command() const { return command_; }
  std::string text(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw Error(Code::invalid_argument, "missing option " + name);
    return found->second;
  }
  int number(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return -1;
    int value = -1;
    const std::string& digits = found->second;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size())
      throw Error(Code::invalid_argument, "not a number: " + digits);
    return value;
  }

 private:
  std::string command_;
  std::map<std::string, std::string> values_;
};

base::LinkConfig config_of(const Arguments& arguments) {
  return base::parse_link_config(base::read_file(arguments.text("--config")));
}

void list_there(const Arguments& arguments) {
  const auto deadline = std::chrono::steady_clock::now() + kListDeadline;
  for (const Machine& machine : machines_of_store(config_of(arguments), deadline))
    std::printf("%s\n", machine_text(machine).c_str());
}

void remove_there(const Arguments& arguments) {
  const base::LinkConfig config = config_of(arguments);
  RemoteMachine machine(config, [&config] { return read_provider_key(config); });
  machine.remove(std::chrono::steady_clock::now() + kRemoveDeadline);
}

[[noreturn]] void salvage_there(const Arguments& arguments) {
  signal(SIGPIPE, SIG_IGN);
  const base::LinkConfig config = config_of(arguments);
  const std::string result = salvage({config, arguments.text("--into")});
  base::write_all(STDOUT_FILENO, result + "\n");
  _exit(0);  // threads of the driver may wait for the machine
}

void run(const Arguments& arguments) {
  if (arguments.command() == "keeper") {
    return run_keeper(
        {.bootstrap = arguments.text("--bootstrap"), .config = arguments.text("--config")});
  }
  if (arguments.command() == "worker")
    run_worker({.config = arguments.text("--config"), .line = arguments.number("--line")});
  if (arguments.command() == "key") return send_key(STDOUT_FILENO, config_of(arguments));
  if (arguments.command() == "remove") return remove_there(arguments);
  if (arguments.command() == "list") return list_there(arguments);
  if (arguments.command() == "salvage") salvage_there(arguments);
  throw Error(Code::invalid_argument, "unknown command " + arguments.command());
}

}  // namespace
}  // namespace moorage::link

int main(int argc, char** argv) {
  try {
    moorage::base::fill_standard_fds();
    moorage::link::run({argc, argv});
    return 0;
  } catch (const moorage::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    if (!error.hint().empty()) std::fprintf(stderr, "hint: %s\n", error.hint().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "moorage-link: %s\n", error.what());
  }
  return 1;
}
