// The requests of base/wire/outpost_requests.h except hello.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/error.h"
#include "base/os/files.h"
#include "outpost/request_fields.h"
#include "outpost/serve.h"
#include "outpost/stream/journal.h"
#include "outpost/trees.h"
#include "outpost/volume_files.h"

namespace moorage::outpost {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr size_t kMaxAside = 4;
constexpr auto kUploadDeadline = std::chrono::hours(24);
constexpr auto kTakeDeadline = std::chrono::minutes(9);  // link waits for ten, then sends the tree
constexpr uint64_t kMaxGraceMs = 600'000;

Limits limits_in(const json::object& request) {
  const json::value& value = request.at("limits");
  if (!value.is_object()) throw Error(Code::invalid_argument, "limits must be an object");
  const json::object& limits = value.get_object();
  return {number_in(limits, "memory_bytes"), number_in(limits, "pids"),
          number_in(limits, "cpu_thousandths")};
}

}  // namespace

std::unique_ptr<Channel> Server::has_tree(const json::object& request, Wire wire) {
  return text_answer(wire, describe_tree(directory_, text_in(request, "key")));
}

// Checked.
ReceiveTree Server::wanted_tree(const json::object& request) const {
  ReceiveTree wanted{text_in(request, "key"), flag_in(request, "more"),
                     overlay_of(json::parse(abilities_).at("overlay").as_string())};
  check_key(wanted.key);
  return wanted;
}

void Server::check_key(const std::string& key) const {
  directory_.tree(key);
  if (aside_.size() >= kMaxAside)
    throw Error(Code::resource_exhausted, "4 trees are arriving for this sandbox already");
}

Operation::Done Server::answer_with(std::weak_ptr<Later> waiting,
                                    std::function<void()> on_success) {
  return [waiting = std::move(waiting),
          on_success = std::move(on_success)](const Operation::Outcome& outcome) {
    if (!outcome.error) on_success();
    const auto asked = waiting.lock();
    if (!asked) return;
    if (outcome.error) return asked->fail(*outcome.error);
    asked->answer(text_answer(asked->wire(), outcome.answer));
  };
}

std::unique_ptr<Channel> Server::put_tree(const json::object& request, Wire wire) {
  ReceiveTree wanted = wanted_tree(request);
  const std::string kept = request.contains("keep") ? text_in(request, "keep") : "";
  auto copy = std::make_shared<Fd>();
  if (!kept.empty()) *copy = base::open_file(directory_.trees(), O_TMPFILE | O_RDWR, 0600);
  wanted.copy = copy->get();
  base::Pipe pipe = base::make_pipe();
  const int source = pipe.read_end.get();
  auto channel = std::make_unique<Upload>(loop_, wire, std::move(pipe.write_end), true);
  run_aside([this, wanted, source] { return receive_tree(directory_, wanted, Fd(source)); },
            {{source, wanted.copy}, kUploadDeadline},
            answer_with(channel->self(), [this, key = wanted.key, kept, copy] {
              settle(key);
              if (kept.empty()) return;
              const auto keep = [kept, copy] { return keep_file(*copy, kept), std::string(); };
              run_unasked("keep a copy of the tree " + key, keep, {copy->get()});
            }));
  return channel;
}

std::unique_ptr<Channel> Server::take_tree(const json::object& request, Wire wire) {
  const ReceiveTree wanted = wanted_tree(request);
  const VolumeFile file{text_in(request, "file"), text_in(request, "digest"),
                        number_in(request, "bytes")};
  const auto take = [this, wanted, file] {
    return receive_tree(directory_, wanted, take_file(file, directory_.trees()));
  };
  auto channel = std::make_unique<Later>(wire);
  run_aside(take, {{}, kTakeDeadline},
            answer_with(channel->self(), [this, key = wanted.key] { settle(key); }));
  return channel;
}

std::unique_ptr<Channel> Server::check_tree(const json::object& request, Wire wire) {
  const std::string key = text_in(request, "key");
  check_key(key);
  base::Pipe pipe = base::make_pipe();
  const int source = pipe.read_end.get();
  auto channel = std::make_unique<Upload>(loop_, wire, std::move(pipe.write_end), true);
  run_aside([this, key, source] { return outpost::check_tree(directory_, key, Fd(source)); },
            {{source}, kUploadDeadline}, answer_with(channel->self(), [] {}));
  return channel;
}

// Beside the jobs, which do not wait for it.
void Server::run_aside(const Operation::Work& work, const Operation::Options& options,
                       Operation::Done done) {
  const auto place = aside_.emplace(aside_.end());
  auto ended = [this, place, done = std::move(done)](Operation::Outcome outcome) {
    ended_.push_back(std::move(*place));
    aside_.erase(place);
    sweep_.start(milliseconds(0), [this] {
      ended_.clear();
      if (!running_) next_job();
    });
    done(std::move(outcome));
  };
  try {
    *place = std::make_unique<Operation>(loop_, work, options, std::move(ended));
  } catch (...) {
    aside_.erase(place);
    throw;
  }
}

void Server::run_unasked(const std::string& what, const Operation::Work& work,
                         std::vector<int> keep_fds) {
  const auto report = [what](const Error& error) {
    const std::string line = "cannot " + what + ": " + error.message() + "\n";
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
  };
  try {
    run_aside(work, {std::move(keep_fds), kUploadDeadline},
              [report](const Operation::Outcome& outcome) {
                if (outcome.error) report(*outcome.error);
              });
  } catch (const Error& error) {
    report(error);
  }
}

void Server::settle(const std::string& key) {
  const auto work = [this, key] {
    settle_tree(directory_, key);
    return std::string();
  };
  run_unasked("sync the tree " + key, work, {});
}

std::unique_ptr<Channel> Server::prepare(const json::object& request, Wire wire) {
  Setup setup{text_in(request, "tree"), text_in(request, "objects"),
              text_in(request, "certificates"), flag_in(request, "plain")};
  if (request.contains("limits")) setup.limits = limits_in(request);
  return enqueue_for(wire,
                     {{},
                      [this, setup] { return sandbox_.prepare(setup); },
                      {},
                      [this](Wire to, const std::string&) { return text_answer(to, greeting()); },
                      [this](const std::string& answer) { abilities_ = answer; }});
}

std::unique_ptr<Channel> Server::apply(const json::object& request, Wire wire) {
  const uint64_t number = number_in(request, "seq");
  const bool repairs = flag_in(request, "repairs");
  // No name: it vanishes with this process.
  const std::string path = sandbox_.path() + "/incoming";
  auto file = std::make_shared<Fd>(base::open_file(path, O_TMPFILE | O_RDWR, 0600));
  auto channel = std::make_unique<Upload>(loop_, wire, file->duplicate(), false);
  channel->on_complete([this, number, repairs, file, waiting = channel->self()](Fd) {
    const auto asked = waiting.lock();
    if (!asked) return;
    try {
      enqueue({waiting,
               [this, number, repairs, file] {
                 return sandbox_.apply(number, repairs, std::move(*file));
               },
               file, text_answer});
    } catch (const Error& error) {
      asked->fail(error);
    }
  });
  return channel;
}

std::unique_ptr<Channel> Server::start(const json::object&, Wire wire) {
  return enqueue_for(wire, {{}, [this] { return sandbox_.start(); }, {}, text_answer});
}

std::unique_ptr<Channel> Server::http(const json::object&, Wire wire) {
  if (!runs()) throw Error(Code::unavailable, "the sandbox here does not run");
  return std::make_unique<Relay>(loop_, wire, sandbox_.warden_socket());
}

std::unique_ptr<Channel> Server::journal(const json::object& request, Wire wire) {
  const std::string tag = text_in(request, "tag");
  if (!is_name(tag)) throw Error(Code::invalid_argument, "not a valid tag");
  JournalChannel::Options options{sandbox_.spool() + "/" + tag, number_in(request, "offset"),
                                  [this] { return runs(); },
                                  [this] {
                                    ended_since_sync_ = true;
                                    begin_sync();
                                  }};
  if (flag_in(request, "waits"))
    return std::make_unique<AwaitedJournal>(loop_, wire, std::move(options));
  return std::make_unique<JournalChannel>(loop_, wire, options);
}

std::unique_ptr<Channel> Server::sync(const json::object& request, Wire wire) {
  const uint64_t acknowledged = number_in(request, "acknowledged");
  if (flag_in(request, "waits")) return sync_when_asked(acknowledged, wire);
  return enqueue_for(wire, sync_job(acknowledged));
}

Server::Job Server::sync_job(uint64_t acknowledged) {
  return {{},
          [this, acknowledged] { return sandbox_.sync(acknowledged); },
          {},
          [this](Wire to, const std::string& answer) -> std::unique_ptr<Channel> {
            if (!json::parse(answer).at("changed").as_bool()) return text_answer(to, {});
            return std::make_unique<Answer>(to, base::open_file(sandbox_.sync_pack(), O_RDONLY));
          },
          {},
          [this] { ended_since_sync_ = false; }};
}

std::unique_ptr<Channel> Server::sync_when_asked(uint64_t acknowledged, Wire wire) {
  auto channel = std::make_unique<Standing>(wire, [this] { begin_sync(); });
  standing_sync_ = sync_job(acknowledged);
  standing_sync_->channel = channel->self();
  standing_sync_->on_begin = [this, wire] {
    ended_since_sync_ = false;
    wire.send("b");
  };
  if (ended_since_sync_) begin_sync();
  return channel;
}

// Unless it has begun, or link has not asked yet.
void Server::begin_sync() {
  if (!standing_sync_) return;
  Job job = *std::exchange(standing_sync_, std::nullopt);
  const auto channel = job.channel;
  try {
    enqueue(std::move(job));
  } catch (const Error& error) {
    if (const auto asked = channel.lock()) asked->fail(error);
  }
}

std::unique_ptr<Channel> Server::network(const json::object&, Wire wire) {
  if (!runs()) throw Error(Code::unavailable, "the sandbox here does not run");
  return network_.network(wire);
}

std::unique_ptr<Channel> Server::accept(const json::object&, Wire wire) {
  return network_.accept(wire);
}

std::unique_ptr<Channel> Server::stop(const json::object& request, Wire wire) {
  const milliseconds grace(std::min(number_in(request, "grace_ms"), kMaxGraceMs));
  return enqueue_for(wire, {{}, [this, grace] { return sandbox_.stop(grace); }, {}, text_answer});
}

std::unique_ptr<Channel> Server::destroy(const json::object&, Wire wire) {
  return enqueue_for(wire, {{},
                            [this] { return sandbox_.destroy(); },
                            {},
                            text_answer,
                            [this](const std::string&) {
                              destroyed_ = true;
                              for (Peer& peer : peers_) peer.session->close_soon();
                            }});
}

}  // namespace moorage::outpost
