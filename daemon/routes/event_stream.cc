#include "daemon/routes/event_stream.h"

#include <utility>

#include "daemon/json/json_views.h"
#include "state_db/store.h"
#include "state_db/tables/workspaces.h"

namespace moorage::daemon {
namespace {

constexpr size_t kEventsAtOnce = 100;

class EventSource : public BodySource {
 public:
  EventSource(EventHub& hub, workspace::Caller caller, int64_t since, bool follow)
      : hub_(hub), caller_(std::move(caller)), since_(since), follow_(follow) {}
  ~EventSource() override {
    if (subscription_ != 0) hub_.unsubscribe(subscription_);
  }

  void start(std::function<void()> wake) override {
    if (follow_) subscription_ = hub_.subscribe(std::move(wake));
  }
  Step read() override {
    Step step;
    const auto events = hub_.store().events(since_, kEventsAtOnce);
    for (const auto& event : events) {
      since_ = event.seq;
      if (visible(event)) step.bytes += event_json(event) + "\n";
    }
    if (events.size() < kEventsAtOnce) step.next = follow_ ? Next::wait : Next::end;
    return step;
  }
  bool endless() const override { return follow_; }

 private:
  bool visible(const state_db::Event& event) {
    if (caller_.root()) return true;
    const auto id = event.subject.workspace;
    if (!id) return false;
    if (event.kind == "workspace.shared") seen_.erase(id);
    const auto known = seen_.find(id);
    if (known != seen_.end()) return known->second;
    const auto row = state_db::WorkspaceTable(hub_.store()).find(id);
    const bool seen = row && workspace::sees(caller_, *row);
    if (event.kind != "workspace.shared") seen_.emplace(id, seen);
    return seen;
  }

  EventHub& hub_;
  workspace::Caller caller_;
  int64_t since_;
  bool follow_;
  uint64_t subscription_ = 0;
  std::map<base::WorkspaceId, bool> seen_;
};

}  // namespace

EventHub::EventHub(state_db::Store& store) : store_(store) {
  store.on_event([this](int64_t) { wake_all(); });
}

EventHub::~EventHub() { store_.on_event({}); }

uint64_t EventHub::subscribe(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wakes_.emplace(next_, std::move(wake));
  return next_++;
}

void EventHub::unsubscribe(uint64_t number) {
  const std::lock_guard lock(mutex_);
  wakes_.erase(number);
}

void EventHub::wake_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, wake] : wakes_) wake();
}

std::unique_ptr<BodySource> stream_events(EventHub& hub, const workspace::Caller& caller,
                                          int64_t since_seq, bool follow) {
  return std::make_unique<EventSource>(hub, caller, since_seq, follow);
}

}  // namespace moorage::daemon
