#include "link/start_up.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/wire/outpost_requests.h"

namespace moorage::link {
namespace {

namespace json = boost::json;
namespace outpost = base::outpost;

constexpr std::chrono::minutes kPatience{10};  // without progress: a walk, a large apply
constexpr size_t kMaxListed = 100'000;
constexpr uint64_t kMostLost = 10'000'000;

bool flag(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  const bool* found = value ? value->if_bool() : nullptr;
  return found && *found;
}

std::string text(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  const json::string* found = value ? value->if_string() : nullptr;
  return found ? std::string(*found) : std::string();
}

// Names of files that are there with the size that they have here.
std::vector<std::string> present_files(const json::object& there, const std::string& root) {
  const json::value* value = there.if_contains("entries");
  const json::array* entries = value ? value->if_array() : nullptr;
  std::vector<std::string> present;
  if (!entries || entries->size() > kMaxListed) return present;
  for (const json::value& entry : *entries) {
    const json::object* object = entry.if_object();
    const json::value* size = object ? object->if_contains("size") : nullptr;
    if (!size || !size->is_number()) continue;
    std::string name = text(*object, "name");
    struct stat here;
    // A hostile name only makes us send a file that is there.
    if (name.empty() || lstat((root + "/" + name).c_str(), &here) != 0) continue;
    boost::system::error_code error;
    const auto there_bytes = size->to_number<uint64_t>(error);
    if (!error && S_ISREG(here.st_mode) && static_cast<uint64_t>(here.st_size) == there_bytes)
      present.push_back(std::move(name));
  }
  return present;
}

}  // namespace

// Only the next worker can have another process that makes packs.
StartUp::StartUp(base::Loop& loop, const base::LinkConfig& config, Packer& packer)
    : loop_(loop),
      config_(config),
      packer_(packer),
      packer_end_(loop, packer.socket(), EPOLLRDHUP, [](uint32_t) { _exit(1); }) {}

// Rises across restarts of this process; the machine there applies each number once.
uint64_t StartUp::next_sequence() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const auto stamp =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
  sequence_ = std::max(sequence_ + 1, stamp);
  return sequence_;
}

void StartUp::call(Call::Options options, bool with_pack, Next next) {
  options.deadline = kPatience;
  call_ = Call::start(
      loop_, *stream_, std::move(options),
      [this, with_pack, next = std::move(next)](const json::object& answer, const Error* error) {
        call_.reset();
        if (!error) return next(answer);
        const Done done = std::exchange(done_, nullptr);
        // A pack that could not be made looks damaged there.
        const auto packing = with_pack ? packer_.failure() : std::nullopt;
        done(packing ? &*packing : error);
      });
}

void StartUp::ask(json::object request, Next next) {
  call({.request = std::move(request)}, false, std::move(next));
}

void StartUp::send_pack(json::object request, const PackJob& job, Next next) {
  base::Fd body;
  try {
    body = packer_.begin(job);
  } catch (const Error& error) {  // a job may be too large, by names that the machine said
    return std::exchange(done_, nullptr)(&error);
  }
  call({.request = std::move(request), .body = std::move(body)}, true, std::move(next));
}

void StartUp::need_tree(const base::LinkTree& tree, std::function<void()> next) {
  if (tree.key.empty()) return next();
  check_tree(tree, [this, &tree, next = std::move(next)] {
    ask({{"what", outpost::kHasTree}, {"key", tree.key}},
        [this, &tree, next](const json::object& there) { send_tree(tree, there, next); });
  });
}

// What a paused machine still has. Of git objects, has_tree compares names and sizes.
void StartUp::check_tree(const base::LinkTree& tree, std::function<void()> next) {
  if (config_.machine.empty() || &tree == &config_.objects) return next();
  send_pack({{"what", outpost::kCheckTree}, {"key", tree.key}},
            {.kind = PackJob::Kind::listing, .path = tree.path},
            [this, next = std::move(next)](const json::object& answer) {
              const json::value* differs = answer.if_contains("differs");
              boost::system::error_code error;
              const auto lost = differs ? differs->to_number<uint64_t>(error) : 0;
              resent_ += std::min(lost, kMostLost);
              next();
            });
}

// What it has is worth a try: if it fails, the tree is sent.
void StartUp::take_tree(const base::LinkTree& tree, const KeptTree& kept,
                        std::function<void()> next) {
  Call::Options options{.request = {{"what", outpost::kTakeTree},
                                    {"key", tree.key},
                                    {"file", std::string(kVolumePlace) + "/" + kept.name},
                                    {"digest", kept.digest},
                                    {"bytes", kept.bytes}},
                        .deadline = kPatience};
  call_ = Call::start(
      loop_, *stream_, std::move(options),
      [this, &tree, next = std::move(next)](const json::object&, const Error* error) {
        call_.reset();
        if (!error) return next();
        if (stream_->broken()) return std::exchange(done_, nullptr)(error);
        const std::string line =
            "moorage-link: the volume does not have the base tree: " + error->message() + "\n";
        [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
        push_tree(tree, {}, next);
      });
}

void StartUp::send_tree(const base::LinkTree& tree, const json::object& there,
                        std::function<void()> next) {
  const bool is_objects = &tree == &config_.objects;
  if (flag(there, "has") && !is_objects) return next();
  PackJob job;
  if (is_objects)
    job.present = present_files(there, tree.path);
  else
    job.after = text(there, "after");
  const bool whole_base = &tree == &config_.base && job.after.empty();
  if (const auto kept = whole_base ? read_kept_tree(config_) : std::nullopt)
    return take_tree(tree, *kept, std::move(next));
  push_tree(tree, std::move(job), std::move(next));
}

void StartUp::push_tree(const base::LinkTree& tree, PackJob job, std::function<void()> next) {
  job.kind = PackJob::Kind::tree;
  job.path = tree.path;
  json::object request{
      {"what", outpost::kPutTree}, {"key", tree.key}, {"more", &tree == &config_.objects}};
  const bool whole_base = &tree == &config_.base && job.after.empty();
  if (whole_base && !config_.kept_trees.empty()) {
    job.keep = new_kept_name(config_);
    request["keep"] = std::string(kVolumePlace) + "/" + job.keep;
  }
  send_pack(std::move(request), job, [next = std::move(next)](const json::object&) { next(); });
}

void StartUp::send_trees(Stream& stream, Done done) {
  stream_ = &stream;
  done_ = std::move(done);
  need_tree(config_.base, [this] {
    need_tree(config_.objects, [this] {
      need_tree(config_.certificates, [this] { std::exchange(done_, nullptr)(nullptr); });
    });
  });
}

void StartUp::begin(Stream& stream, const std::vector<base::LinkLayer>& layers, Done done) {
  stream_ = &stream;
  done_ = std::move(done);
  ask({{"what", outpost::kPrepare},
       {"tree", config_.base.key},
       {"objects", config_.objects.key},
       {"certificates", config_.certificates.key},
       {"plain", config_.machine_is_ours},
       {"limits", json::object{{"memory_bytes", config_.memory_bytes},
                               {"pids", config_.pids},
                               {"cpu_thousandths", static_cast<uint64_t>(config_.cpus * 1000)}}}},
      [this, layers](const json::object& answer) {
        prepared_ = answer;
        send_pack({{"what", outpost::kApply}, {"seq", next_sequence()}},
                  {.kind = PackJob::Kind::layers, .layers = layers}, [this](const json::object&) {
                    ask(json::object{{"what", outpost::kStart}},
                        [this](const json::object&) { std::exchange(done_, nullptr)(nullptr); });
                  });
      });
}

void StartUp::send_paths(Stream& stream, const Paths& paths, Done done) {
  stream_ = &stream;
  done_ = std::move(done);
  send_pack({{"what", outpost::kApply}, {"seq", next_sequence()}, {"repairs", paths.repairs}},
            {.kind = PackJob::Kind::paths, .paths = paths.paths},
            [this](const json::object&) { std::exchange(done_, nullptr)(nullptr); });
}

}  // namespace moorage::link
