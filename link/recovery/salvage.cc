#include "link/recovery/salvage.h"

#include <boost/json.hpp>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/os/event_loop.h"
#include "base/os/files.h"
#include "base/wire/outpost_requests.h"
#include "base/wire/protocol.h"
#include "link/call.h"
#include "link/deadline.h"
#include "link/machine.h"
#include "link/provider_key.h"
#include "link/stream.h"
#include "link/sync_intake.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr const char* kLast = "/last";
constexpr std::chrono::minutes kPatience{2};

std::string incoming(const std::string& directory) { return directory + "/" + base::kIncoming; }

std::optional<uint64_t> last_pack(const std::string& directory) {
  const auto text = base::read_file_if_exists(incoming(directory) + kLast, 32);
  uint64_t number = 0;
  if (!text) return std::nullopt;
  std::from_chars(text->data(), text->data() + text->size(), number);
  return number;
}

class Salvage {
 public:
  explicit Salvage(const SalvageOptions& options)
      : options_(options),
        machine_(options.config, [&options] { return read_provider_key(options.config); }) {}

  std::string run() {
    const Deadline deadline = after(std::chrono::seconds(options_.config.start_deadline_s));
    if (!machine_.exists(deadline)) return answer(false, 0);
    json::object greeting;
    if (!greet(false, deadline, greeting)) greet(true, deadline, greeting);
    // The machine lost its files; a link that looked for it has made an empty one.
    const json::value* has_files = greeting.if_contains("has_files");
    if (has_files && has_files->is_bool() && !has_files->get_bool()) return answer(false, 0);
    ask({{"what", base::outpost::kStop}, {"grace_ms", 0}});
    begin_after(greeting);
    SyncIntake packs(loop_, options_.into);
    packs.attach(*stream_);
    packs.request([this](const Error* error) { done(error); });
    wait();
    ask({{"what", base::outpost::kStop}, {"grace_ms", 0}});  // the process that held its mounts
    return answer(true, packs.waiting_packs());
  }

 private:
  static std::string answer(bool found, size_t packs) {
    return json::serialize(json::object{{"found", found}, {"packs", packs}});
  }

  void done(const Error* error) {
    if (error) failure_ = *error;
    loop_.stop();
  }

  // Until `done`, which every request calls at its end.
  void wait() {
    loop_.run();
    if (failure_) throw Error(*std::exchange(failure_, std::nullopt));
  }

  json::object ask(json::object request) {
    json::object answer;
    const auto call =
        Call::start(loop_, *stream_, {.request = std::move(request), .deadline = kPatience},
                    [&](const json::object& got, const Error* error) {
                      answer = got;
                      done(error);
                    });
    wait();
    return answer;
  }

  // False: our programs are not there.
  bool greet(bool put_programs, Deadline deadline, json::object& greeting) {
    stream_ = std::make_unique<Stream>(
        loop_, machine_.connect({.put_programs = put_programs, .may_create = false}, deadline),
        [](const Error&) {});  // its users get the reason
    try {
      greeting = ask({{"what", base::outpost::kHello},
                      {"protocol", json::object{{"oldest", base::kProtocols.oldest},
                                                {"newest", base::kProtocols.newest}}},
                      {"generation", options_.config.generation},
                      {"give_up", true}});
    } catch (const Error& error) {
      if (error.code() == Code::not_found && !put_programs) return false;
      throw;
    }
    return true;
  }

  // Tells the intake where to begin, unless an earlier salvage into this directory did.
  void begin_after(const json::object& greeting) {
    if (last_pack(options_.into)) return;
    const json::value* value = greeting.if_contains("acknowledged");
    const json::value* sent = greeting.if_contains("next_was_sent");
    boost::system::error_code invalid;
    const uint64_t there = value ? value->to_number<uint64_t>(invalid) : 0;
    const bool next_was_sent = sent && sent->is_bool() && sent->get_bool();
    const uint64_t here = last_pack(options_.config.directory).value_or(there);
    const uint64_t begin = next_was_sent && here == there + 1 ? here : there;
    base::make_directories(incoming(options_.into));
    base::write_file(incoming(options_.into) + kLast, std::to_string(begin));
  }

  const SalvageOptions& options_;
  base::Loop loop_;
  RemoteMachine machine_;
  std::unique_ptr<Stream> stream_;
  std::optional<Error> failure_;
};

}  // namespace

std::string salvage(const SalvageOptions& options) {
  base::make_directories(options.into);
  const base::Fd directory = base::open_directory(options.into);
  if (!base::lock_file(directory.get(), options.into))
    throw Error(Code::conflict, "an earlier salvage of this sandbox is still going on");
  return Salvage(options).run();
}

}  // namespace moorage::link
