// Several attempts at one task, and the differences between two workspaces. The request of a
// best-of is JSON. With ?json_bytes=N its first N bytes are JSON, and the patches that it names
// follow back to back, so that none is held in memory.
#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "daemon/routes/routes.h"

namespace moorage::daemon {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kMaxJsonBytes = 1 << 20;
constexpr uint64_t kMaxWait_s = 3600;
constexpr milliseconds kLookPause{200};

Reply answer(const workspace::BestOfView& view, int status = 200) {
  return Reply::json(best_of_json(view), status, view.row.id.str());
}

state_db::Promote promote_of(JsonFields& fields) {
  const std::string name = fields.text("promote").value_or("");
  const auto promote = state_db::promote_from_name(name);
  if (!promote) {
    throw Error(Code::invalid_argument,
                "promote must be 'first-passing' or 'smallest-diff', not '" +
                    base::escape_for_message(name) + "'",
                "leave it out, and choose later with moorage promote");
  }
  return *promote;
}

workspace::BestOfRequest parse_request(std::string_view json, const Request& request) {
  JsonFields fields = JsonFields::parse(json);
  workspace::BestOfRequest wanted;
  wanted.count = static_cast<uint32_t>(fields.whole("count", 1, workspace::kMaxForks).value_or(0));
  wanted.each = fields.command("each").value_or(std::vector<std::string>());
  wanted.test = fields.command("test").value_or(std::vector<std::string>());
  wanted.timeout_ms = fields.whole("timeout_ms", 1, workspace::kMaxAttemptTimeout_ms).value_or(0);
  wanted.promote = promote_of(fields);
  wanted.parallel =
      static_cast<uint32_t>(fields.whole("parallel", 1, workspace::kMaxParallel).value_or(0));
  wanted.keep = fields.flag("keep");
  if (auto patches = fields.objects("patches")) {
    for (auto& patch : *patches) {
      wanted.patches.push_back(
          {patch.required_bytes("name"),
           static_cast<uint64_t>(patch.whole("bytes", 0, INT64_MAX).value_or(0))});
      patch.finish();
    }
  }
  wanted.idempotency_key = request.idempotency_key;
  fields.finish();
  return wanted;
}

class BestOfSink : public BodySink {
 public:
  BestOfSink(Api& api, const Request& request)
      : api_(api), request_(request), json_bytes_(request.query_number("json_bytes")) {
    workspace::find_workspace(api.store, request.caller, request.parameter(0), Right::write);
    if (json_bytes_ > kMaxJsonBytes) refuse_long();
  }

  Taken write(std::string_view piece) override {
    hash_.add(piece);
    if (!wanted_) {
      const uint64_t most = json_bytes_.value_or(kMaxJsonBytes + 1);
      const size_t part = std::min<uint64_t>(piece.size(), most - json_.size());
      json_ += piece.substr(0, part);
      piece.remove_prefix(part);
      if (json_.size() > kMaxJsonBytes) refuse_long();
      if (!json_bytes_ || json_.size() < *json_bytes_) return Taken::all;
      parse();
    }
    taken_ += piece.size();
    if (taken_ > wanted_->patch_bytes()) {
      throw Error(Code::invalid_argument, "the body is longer than the patches: they have " +
                                              std::to_string(wanted_->patch_bytes()) + " bytes");
    }
    if (!piece.empty()) base::write_all(file_.get(), piece);
    return Taken::all;
  }

  Reply finish() override {
    if (!wanted_) parse();
    if (taken_ != wanted_->patch_bytes()) {
      throw Error(Code::invalid_argument,
                  "the patches have " + std::to_string(wanted_->patch_bytes()) + " bytes, but " +
                      std::to_string(taken_) + " arrived",
                  "send them after the JSON, and give its length as ?json_bytes=N");
    }
    wanted_->body_hash = base::to_hex(hash_.raw());
    const auto run = [this] {
      return api_.best_of.start(request_.caller, request_.parameter(0), *wanted_, std::move(file_));
    };
    return answer(api_.context.metrics.counted(Counted::best_of, run), 201);
  }

 private:
  [[noreturn]] static void refuse_long() {
    throw Error(Code::invalid_argument,
                "the JSON of a best-of exceeds " + std::to_string(kMaxJsonBytes) + " bytes");
  }
  void parse() {
    wanted_ = parse_request(json_, request_);
    if (wanted_->patches.empty()) {
      workspace::check_request(*wanted_);
    } else {
      file_ = api_.best_of.begin_patches(request_.caller, request_.parameter(0), *wanted_);
    }
  }

  Api& api_;
  const Request request_;
  const std::optional<uint64_t> json_bytes_;
  std::string json_;
  base::Sha256 hash_;
  std::optional<workspace::BestOfRequest> wanted_;
  base::Fd file_;
  uint64_t taken_ = 0;  // of the patches
};

// Holds no thread while it waits.
class WaitSource : public BodySource {
 public:
  WaitSource(workspace::BestOf& best_of, workspace::Caller caller, base::BestOfId id,
             milliseconds timeout)
      : best_of_(best_of),
        caller_(std::move(caller)),
        id_(id),
        deadline_(std::chrono::steady_clock::now() + timeout) {}

  Step read() override {
    const auto view = best_of_.show(caller_, id_);
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - std::chrono::steady_clock::now());
    if (!view.row.is_open() || left.count() <= 0) return {best_of_json(view), Next::end, {}};
    return {{}, Next::wait, std::min(left, kLookPause)};
  }
  bool endless() const override { return true; }

 private:
  workspace::BestOf& best_of_;
  const workspace::Caller caller_;
  const base::BestOfId id_;
  const std::chrono::steady_clock::time_point deadline_;
};

base::BestOfId id_of(const Request& request) {
  const std::string& text = request.parameter(0);
  if (const auto id = base::BestOfId::parse(text)) return *id;
  throw Error(Code::not_found, "there is no best-of '" + base::escape_for_message(text) + "'",
              "its id looks like bo_N; moorage best-of NAME lists those of a workspace");
}

std::unique_ptr<BodySink> start(Api& api, const Request& request) {
  return std::make_unique<BestOfSink>(api, request);
}

Reply list(Api& api, const Request& request) {
  return Reply::json(best_ofs_json(api.best_of.list(request.caller, request.parameter(0))));
}

Reply show(Api& api, const Request& request) {
  const auto id = id_of(request);
  const auto view = api.best_of.show(request.caller, id);
  const uint64_t wait_s = request.query_number("wait", kMaxWait_s).value_or(0);
  if (wait_s == 0 || !view.row.is_open()) return answer(view);
  const milliseconds timeout(static_cast<int64_t>(wait_s) * 1000);
  return Reply::stream(std::make_unique<WaitSource>(api.best_of, request.caller, id, timeout),
                       kJsonType, id.str());
}

Reply cancel(Api& api, const Request& request) {
  JsonFields::parse(request.body).finish();
  return answer(api.best_of.cancel(request.caller, id_of(request)));
}

Reply resume_cancel(Api& api, const Request& request, const std::string&) {
  return answer(api.best_of.show(request.caller, id_of(request)));
}

Reply compare(Api& api, const Request& request) {
  const std::string& from = request.parameter(0);
  workspace::find_workspace(api.store, request.caller, from, Right::read);
  const std::string with = request.required_query("with");
  return api.context.metrics.counted(Counted::compare, [&] {
    if (!request.query_flag("patch"))
      return Reply::json(comparison_json(api.comparison.compare(request.caller, from, with)));
    Reply reply = Reply::json(patch_text(api.comparison.patch(request.caller, from, with)));
    reply.content_type = "text/x-patch";
    return reply;
  });
}

}  // namespace

void add_best_of_routes(Router& router, Api& api) {
  const RouteTable routes(router, api);
  routes.add("POST /v1/workspaces/{}/best-of", Right::write, start,
             {.query = {"json_bytes"}, .lane = Lane::slow, .keep = Keep::joined});
  routes.add("GET /v1/workspaces/{}/best-of", Right::read, list);
  routes.add("GET /v1/workspaces/{}/compare", Right::read, compare,
             {.query = {"with", "patch"}, .lane = Lane::slow});
  routes.add("GET /v1/best-of/{}", Right::read, show, {.query = {"wait"}});
  routes.add("POST /v1/best-of/{}/cancel", Right::write, cancel,
             {.keep = Keep::joined, .resume = resume_cancel});
}

}  // namespace moorage::daemon
