#include "link/volume/daytona_volume.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "link/volume/kept_tree.h"

namespace moorage::link {
namespace {

constexpr std::chrono::milliseconds kFirstPoll{100};
constexpr std::chrono::milliseconds kLongestPoll{2'000};

struct Seen {
  std::string id;
  std::string state;  // "none": no such volume
  std::string reason;
};

Seen look(ProviderApi& api, const std::string& name, Deadline deadline) {
  const HttpResponse response = api.call({.what = "look up volume " + name,
                                          .target = "/volumes/by-name/" + percent_encode(name),
                                          .accepted = {404}},
                                         deadline);
  if (response.status == 404) return {{}, "none", {}};
  const boost::json::value value = parse_answer(response.body);
  const JsonObject& volume = object_in(value, "the volume");
  return {id_field(volume, "id"), printable(text_field(volume, "state")),
          printable(text_field(volume, "errorReason"))};
}

// 409: somebody else makes it now.
void make(ProviderApi& api, const std::string& name, Deadline deadline) {
  api.call({.what = "create volume " + name,
            .method = "POST",
            .target = "/volumes",
            .body = boost::json::serialize(JsonObject{{"name", name}}),
            .accepted = {409}},
           deadline);
}

}  // namespace

std::string ready_volume(ProviderApi& api, const std::string& name, Deadline deadline) {
  bool made = false;
  for (std::chrono::milliseconds pause = kFirstPoll;; pause = std::min(pause * 2, kLongestPoll)) {
    const Seen seen = look(api, name, deadline);
    if (seen.state == "ready") return seen.id;
    if (seen.state == "error") {
      throw Error(Code::unavailable, "daytona: volume " + name + " has an error: " + seen.reason,
                  "delete it in Daytona's dashboard, or name another one in backends.daytona");
    }
    if (seen.state == "none" && !std::exchange(made, true)) make(api, name, deadline);
    if (std::chrono::steady_clock::now() + pause >= deadline) {
      throw Error(Code::deadline_exceeded,
                  "daytona: volume " + name + " is not ready: its state is " + seen.state,
                  "try again later, or name another one in backends.daytona");
    }
    std::this_thread::sleep_for(pause);
  }
}

std::string part_name(const Labels& labels, const std::string& tree) {
  return labels.at(kStoreLabel) + "/" + tree;
}

JsonObject part_of_volume(const std::string& id, const std::string& part) {
  return {{"volumeId", id}, {"mountPath", kVolumePlace}, {"subpath", part}};
}

void require_part_of_volume(const JsonObject& sandbox) {
  const boost::json::array* volumes = array_field(sandbox, "volumes");
  if (volumes == nullptr) return;
  for (const boost::json::value& one : *volumes) {
    const JsonObject& volume = object_in(one, "a volume");
    if (text_field(volume, "mountPath") != kVolumePlace) continue;
    if (!text_field(volume, "subpath").empty()) continue;
    throw Error(Code::unsupported,
                "daytona: this server shows its sandboxes whole volumes, so one would see the base "
                "trees of others",
                "remove the volume from backends.daytona");
  }
}

}  // namespace moorage::link
