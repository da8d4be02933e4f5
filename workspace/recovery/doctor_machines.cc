// The part of doctor (doctor.h) that looks at machines elsewhere.
#include "backends/remote/places.h"
#include "workspace/recovery/doctor.h"
#include "workspace/recovery/machines.h"

namespace moorage::workspace {
namespace {

constexpr const char* kRemoved = "it is removed there";

std::string recovered(const LeftMachine& left) { return left.workspace.name + "-recovered"; }

std::string on(const UnusedMachine& one) {
  return one.note.place == one.backend ? "at " + one.backend
                                       : "on " + one.note.place + " (" + one.backend + ")";
}

// Of one that may have changes which never arrived.
Finding finding_of_left(const UnusedMachine& one) {
  const LeftMachine& left = *one.left;
  Finding finding{"machines", Severity::warning, one.note.sandbox,
                  left.workspace.name + " went on without the last changes " + on(one)};
  if (left.held) {
    finding.severity = Severity::error;
    finding.text += ", and they cannot be taken over: " + left.trouble;
    finding.command = "moorage doctor --fix tries again; " + left.way_to_give_up() +
                      " gives them up, and the machine is removed";
    return finding;
  }
  if (!left.trouble.empty()) finding.text += "; the last try to fetch them failed: " + left.trouble;
  if (one.configured) {
    finding.mend = "the changes come as " + recovered(left) + ", then the sandbox is removed there";
    return finding;
  }
  finding.text += ", which is no longer in the configuration";
  finding.command = "add " + one.note.place + " to backends." + one.backend + " again; or " +
                    left.way_to_give_up() + " gives them up";
  return finding;
}

Finding finding_of(const UnusedMachine& one, const std::string& notes) {
  if (one.left) return finding_of_left(one);
  const std::string& name = one.note.sandbox;
  if (!one.noted) {
    return {"machines", Severity::warning, name,
            "a sandbox exists " + on(one) + " that state.db does not list", kRemoved};
  }
  Finding finding{"machines", Severity::warning, name,
                  "its sandbox was destroyed while its machine could not be reached; it may still "
                  "exist " +
                      on(one)};
  if (one.configured) {
    finding.mend = kRemoved;
    return finding;
  }
  finding.text += ", which is no longer in the configuration";
  finding.command = "add " + one.note.place + " to backends." + one.backend +
                    " again; or remove the sandbox there, and then " + notes + "/" + name + ".json";
  return finding;
}

}  // namespace

void Doctor::machines(Findings& found, const std::vector<PlaceAnswer>& answers) {
  MachineSweep& sweep = reconciler_.machines();
  const std::string notes = context_.options.store + "/remote";
  for (const auto& one : sweep.unused()) found.push_back(finding_of(one, notes));
  for (const auto& one : sweep.unknown(answers)) found.push_back(finding_of(one, notes));
  for (const auto& answer : answers) {
    if (answer.error.empty()) continue;
    found.push_back({"machines", Severity::warning, answer.backend + "/" + answer.place,
                     answer.place + " did not say which sandboxes it has: " + answer.error, "",
                     answer.hint});
  }
  for (const auto& note : backends::list_notes(notes)) {
    if (note.problem.empty()) continue;
    found.push_back(
        {"machines", Severity::error, note.sandbox,
         "the note about its machine cannot be read: " + note.problem, "",
         "remove the sandbox on its machine, and then " + notes + "/" + note.sandbox + ".json"});
  }
}

}  // namespace moorage::workspace
