#include "backends/remote/places.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::backends {
namespace {

namespace json = boost::json;

constexpr std::string_view kSuffix = ".json";
constexpr uint64_t kMaxNoteBytes = 4096;
constexpr size_t kMaxErrorBytes = 500;

std::string note_path(const std::string& directory, const std::string& sandbox) {
  return directory + "/" + sandbox + std::string(kSuffix);
}

void write_note(const std::string& directory, const MachineNote& note) {
  json::object object{
      {"driver", note.driver}, {"place", note.place}, {"generation", note.generation}};
  object["workspace"] = note.workspace;
  object["machine"] = note.machine;
  object["machine_generation"] = note.machine_generation;
  object["made_of"] = note.made_of;
  object["kept"] = note.kept;
  base::write_file_durable(note_path(directory, note.sandbox), json::serialize(object) + "\n");
}

MachineNote read_note(const std::string& directory, const std::string& sandbox) {
  MachineNote note{.sandbox = sandbox};
  try {
    const json::value value =
        json::parse(base::read_file(note_path(directory, sandbox), kMaxNoteBytes));
    note.driver = value.at("driver").as_string();
    note.place = value.at("place").as_string();
    note.generation = value.at("generation").to_number<uint64_t>();
    if (!value.as_object().contains("kept")) return note;  // of an earlier release
    note.workspace = value.at("workspace").as_string();
    note.machine = value.at("machine").as_string();
    note.machine_generation = value.at("machine_generation").to_number<uint64_t>();
    note.made_of = value.at("made_of").as_string();
    note.kept = value.at("kept").as_bool();
  } catch (const std::exception& error) {
    // Still a machine that may exist.
    note.driver.clear();
    note.problem = error.what();
  }
  return note;
}

std::string use_text(const PlaceUse& place) {
  return place.name + " " + std::to_string(place.used) + " of " + std::to_string(place.most);
}

std::string use_text(const std::vector<PlaceUse>& places) {
  std::string text;
  for (const PlaceUse& place : places) text += (text.empty() ? "" : ", ") + use_text(place);
  return text;
}

}  // namespace

std::vector<MachineNote> list_notes(const std::string& directory) {
  std::vector<MachineNote> notes;
  if (!base::path_exists(directory)) return notes;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    // Others are what an interrupted write left.
    if (!name.ends_with(kSuffix) || name.starts_with('.')) continue;
    notes.push_back(read_note(directory, name.substr(0, name.size() - kSuffix.size())));
  }
  std::sort(notes.begin(), notes.end(),
            [](const auto& a, const auto& b) { return a.sandbox < b.sandbox; });
  return notes;
}

void remove_note(const std::string& directory, const std::string& sandbox) {
  const std::string path = note_path(directory, sandbox);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) base::throw_errno("remove " + path);
  base::sync_directory(directory);
}

Places::Places(std::string directory, std::string driver, std::vector<PlaceOptions> places)
    : directory_(std::move(directory)), driver_(std::move(driver)) {
  for (PlaceOptions& place : places) {
    made_of_[place.name] = std::move(place.made_of);
    places_.push_back({.name = std::move(place.name), .most = place.most});
  }
  for (MachineNote& note : list_notes(directory_)) {
    if (note.driver == driver_) notes_.emplace(note.sandbox, std::move(note));
  }
  drop_doubles();
  sort_out_kept();
}

// A machine that the configuration would make of something else now waits for nobody.
void Places::sort_out_kept() {
  for (auto& [sandbox, note] : notes_) {
    const auto now = made_of_.find(note.place);
    if (now != made_of_.end() && now->second != note.made_of) note.kept = false;
  }
}

// Of a machine that was taken over just before a kill: the older note is not its any more.
void Places::drop_doubles() {
  std::map<std::string, std::string> owners;  // by machine
  std::vector<std::string> old;
  for (const auto& [sandbox, note] : notes_) {
    const auto [found, first] = owners.emplace(note.machine_name(), sandbox);
    if (first) continue;
    const bool newer = note.generation > notes_.at(found->second).generation;
    old.push_back(newer ? found->second : sandbox);
    if (newer) found->second = sandbox;
  }
  for (const std::string& sandbox : old) release(sandbox);
}

uint32_t Places::used(const std::string& place) const {
  return static_cast<uint32_t>(std::count_if(notes_.begin(), notes_.end(), [&](const auto& entry) {
    return entry.second.place == place && !entry.second.kept;
  }));
}

uint32_t Places::kept(const std::string& place) const {
  return static_cast<uint32_t>(std::count_if(notes_.begin(), notes_.end(), [&](const auto& entry) {
    return entry.second.place == place && entry.second.kept;
  }));
}

void Places::refuse_unknown(const std::string& place) const {
  std::string known;
  for (const PlaceUse& each : places_) known += (known.empty() ? "" : ", ") + each.name;
  throw Error(Code::not_found, "backend " + driver_ + " has no host '" + place + "'",
              known.empty() ? "none are configured" : "available hosts: " + known);
}

const PlaceUse& Places::choose(const std::string& place) const {
  const PlaceUse* best = nullptr;
  const auto rank = [&](const PlaceUse& each) {
    return std::pair(each.last_error.empty(), each.most - std::min(each.most, used(each.name)));
  };
  bool known = false;
  for (const PlaceUse& each : places_) {
    if (!place.empty() && each.name != place) continue;
    known = true;
    if (used(each.name) < each.most && (!best || rank(each) > rank(*best))) best = &each;
  }
  if (best) return *best;
  if (!known) refuse_unknown(place);
  std::vector<PlaceUse> now = places_;
  for (PlaceUse& each : now) each.used = used(each.name);
  throw Error(Code::resource_exhausted,
              (place.empty() ? "every host of backend " + driver_
                             : "host " + place + " of backend " + driver_) +
                  " has as many sandboxes as it may: " + use_text(now),
              "stop a workspace there, or raise max_sandboxes in the section backends of the "
              "configuration");
}

MachineNote Places::reserve(const MachineNote& wanted, std::optional<MachineNote>& taken_over) {
  const std::string& place = wanted.place;
  const std::lock_guard lock(mutex_);
  if (const auto found = notes_.find(wanted.sandbox); found != notes_.end()) {
    if (!place.empty() && place != found->second.place) {
      throw Error(Code::conflict,
                  "a machine of " + wanted.sandbox + " may still exist on " + found->second.place,
                  "it must be removed before the sandbox starts on " + place);
    }
    found->second.generation = wanted.generation;
    return found->second;
  }
  MachineNote note = wanted;
  note.place = choose(place).name;
  note.made_of = made_of_[note.place];
  const auto kept = std::find_if(notes_.begin(), notes_.end(), [&](const auto& entry) {
    const MachineNote& other = entry.second;
    return other.kept && other.place == note.place && other.workspace == note.workspace;
  });
  if (kept != notes_.end()) {
    const MachineNote& former = kept->second;
    note.machine = former.machine_name();
    note.machine_generation =
        former.machine.empty() ? former.generation : former.machine_generation;
    taken_over = former;
    notes_.erase(kept);
  }
  notes_.emplace(note.sandbox, note);
  return note;
}

MachineNote Places::take(const std::string& sandbox, uint64_t generation, const std::string& place,
                         const std::string& workspace) {
  const auto before = find(sandbox);
  std::optional<MachineNote> taken_over;
  const MachineNote note = reserve({.sandbox = sandbox,
                                    .driver = driver_,
                                    .place = place,
                                    .generation = generation,
                                    .workspace = workspace},
                                   taken_over);
  try {
    base::make_directories(directory_);
    write_note(directory_, note);  // without the lock: a disk may be slow
    if (taken_over) remove_note(directory_, taken_over->sandbox);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    notes_.erase(sandbox);
    if (before) notes_.emplace(sandbox, *before);
    if (taken_over) notes_.emplace(taken_over->sandbox, *taken_over);
    throw;
  }
  return note;
}

bool Places::may_keep(const std::string& sandbox) const {
  const std::lock_guard lock(mutex_);
  const auto found = notes_.find(sandbox);
  if (found == notes_.end() || found->second.workspace.empty()) return false;
  return std::any_of(places_.begin(), places_.end(), [&](const PlaceUse& each) {
    return each.name == found->second.place && kept(each.name) < each.most;
  });
}

void Places::keep(const std::string& sandbox) {
  auto note = find(sandbox);
  if (!note) throw Error(Code::not_found, "no machine of " + sandbox + " is known");
  note->kept = true;
  write_note(directory_, *note);
  const std::lock_guard lock(mutex_);
  notes_[sandbox] = *note;
}

std::string Places::owner_of(const std::string& machine) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [sandbox, note] : notes_) {
    if (note.machine_name() == machine) return sandbox;
  }
  return machine;
}

void Places::not_paused(const std::string& place, const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (PlaceUse& each : places_) {
    if (each.name == place) each.not_paused = why.substr(0, kMaxErrorBytes);
  }
}

std::optional<MachineNote> Places::find(const std::string& sandbox) const {
  const std::lock_guard lock(mutex_);
  const auto found = notes_.find(sandbox);
  if (found == notes_.end()) return std::nullopt;
  return found->second;
}

std::vector<MachineNote> Places::notes() const {
  const std::lock_guard lock(mutex_);
  std::vector<MachineNote> all;
  for (const auto& [sandbox, note] : notes_) all.push_back(note);
  return all;
}

void Places::release(const std::string& sandbox) {
  remove_note(directory_, sandbox);
  const std::lock_guard lock(mutex_);
  notes_.erase(sandbox);
}

void Places::succeeded(const std::string& place, int64_t wall_ms) {
  const std::lock_guard lock(mutex_);
  for (PlaceUse& each : places_) {
    if (each.name != place) continue;
    each.last_contact_wall_ms = wall_ms;
    each.last_error.clear();
  }
}

void Places::failed(const std::string& place, const std::string& error) {
  const std::lock_guard lock(mutex_);
  for (PlaceUse& each : places_) {
    if (each.name == place) each.last_error = error.substr(0, kMaxErrorBytes);
  }
}

void Places::resumed(const std::string& place, uint64_t sent_again) {
  const std::lock_guard lock(mutex_);
  for (PlaceUse& each : places_) {
    if (each.name == place) each.sent_again = sent_again;
  }
}

void Places::learned(const std::string& place, const base::LinkStatus& status) {
  const std::lock_guard lock(mutex_);
  for (PlaceUse& each : places_) {
    if (each.name != place) continue;
    each.overlay = status.overlay;
    each.limits = status.limits;
    each.root_inside = status.root_inside;
  }
}

std::vector<PlaceUse> Places::uses() const {
  const std::lock_guard lock(mutex_);
  std::vector<PlaceUse> all = places_;
  for (PlaceUse& each : all) {
    each.used = used(each.name);
    each.paused = kept(each.name);
  }
  return all;
}

}  // namespace moorage::backends
