//! Random sequences of operations: a few keys in one or two buckets, so that operations meet, and
//! bad input among the good.

mod values;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use self::values::{COPY_RANGES, KEYS, LIMITS, NAMES, PART, RANGES};
use crate::checksums::HEADERS;
use crate::operation::{
    Announced, Bucket, Conditions, Copy, CopyPart, Delete, DeleteMany, Description, Digested, List,
    Listed, Made, Numbered, Object, Operation, Put, Read, Shape, Step, Tag, Upload, Version,
};
use crate::reference::DOCUMENTS;

/// A generator with the names that operations so far have made.
struct Generator {
    chance: SmallRng,
    keys: Vec<String>,
    made: Vec<(Object, Made)>,
    uploads: Vec<(Step, Object, Vec<i32>)>,
    /// Large bodies that the sequence may still have: they take most of its time.
    large: usize,
}

/// Makes the sequence of a seed.
pub(crate) fn sequence(seed: u64, length: usize) -> Vec<Numbered> {
    let mut chance = SmallRng::seed_from_u64(seed);
    let mut keys: Vec<String> =
        KEYS.choose_multiple(&mut chance, 5).map(|key| (*key).to_owned()).collect();
    if chance.random_ratio(1, 4) {
        keys.push("k".repeat(if chance.random() { 1024 } else { 1025 }));
    }
    let (made, uploads) = (Vec::new(), Vec::new());
    let mut generator = Generator { chance, keys, made, uploads, large: 3 };
    let mut operations = generator.prologue();
    while operations.len() < length {
        operations.push(generator.operation(operations.len()));
    }
    operations.extend(generator.epilogue());
    let numbered = |(step, operation)| Numbered { step, operation };
    operations.into_iter().enumerate().map(numbered).collect()
}

impl Generator {
    fn prologue(&mut self) -> Vec<Operation> {
        let lock = self.one_in(4);
        let mut operations = vec![Operation::CreateBucket { bucket: Bucket::First, lock }];
        if self.one_in(2) {
            operations.push(Operation::CreateBucket { bucket: Bucket::Second, lock: false });
        }
        if self.one_in(2) {
            let bucket = Bucket::First;
            operations.push(Operation::SetVersioning { bucket, status: "Enabled" });
        }
        operations
    }

    /// Reads everything that the operations before have left.
    fn epilogue(&mut self) -> Vec<Operation> {
        let list = |listed| {
            let (prefix, delimiter) = (String::new(), String::new());
            let (marker, limit, encoding) = (None, Some("2"), Some("url"));
            let bucket = Bucket::First;
            let pages = true;
            Operation::List(List {
                bucket,
                listed,
                prefix,
                delimiter,
                marker,
                limit,
                encoding,
                pages,
            })
        };
        let mut operations: Vec<Operation> =
            [Listed::Objects, Listed::ObjectsV2, Listed::Versions, Listed::Uploads]
                .map(list)
                .into();
        for key in self.keys.clone() {
            let object = Object { bucket: Bucket::First, key };
            let (version, conditions) = (Version::Current, Conditions::default());
            let (head, range, part) = (false, None, None);
            let read = Read { object, version, head, range, part, conditions };
            operations.push(Operation::Read(read));
        }
        operations
    }

    /// Returns true once in so many times.
    fn one_in(&mut self, times: u32) -> bool {
        self.chance.random_ratio(1, times)
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of.choose(&mut self.chance).expect("there are some").clone()
    }

    fn maybe<T: Clone>(&mut self, times: u32, of: &[T]) -> Option<T> {
        self.one_in(times).then(|| self.pick(of))
    }

    fn operation(&mut self, step: Step) -> Operation {
        match self.chance.random_range(0..100) {
            0..24 => self.put(step),
            24..40 => Operation::Read(self.read()),
            40..50 => self.delete(step),
            50..53 => self.delete_many(step),
            53..60 => self.copy(step),
            60..75 => self.of_upload(step),
            75..84 => Operation::List(self.list()),
            84..92 => self.of_version(),
            92..95 => self.document(),
            _ => self.bucket(),
        }
    }

    fn any_bucket(&mut self) -> Bucket {
        match self.chance.random_range(0..20) {
            0 => Bucket::Absent,
            1..4 => Bucket::Second,
            _ => Bucket::First,
        }
    }

    fn object(&mut self) -> Object {
        let (bucket, keys) = (self.any_bucket(), self.keys.clone());
        Object { bucket, key: self.pick(&keys) }
    }

    /// A version of an object: often one that an operation made.
    fn version(&mut self, object: &Object) -> Version {
        let of_object = self.made.iter().filter(|it| it.0 == *object).map(|it| it.1);
        let of_object: Vec<Made> = of_object.collect();
        match self.chance.random_range(0..20) {
            0 => Version::Missing,
            1 => Version::Malformed,
            2 | 3 => Version::Null,
            4..10 if !of_object.is_empty() => Version::Of(self.pick(&of_object)),
            _ => Version::Current,
        }
    }

    fn made_by(&mut self, step: Step, object: &Object) {
        self.made.push((object.clone(), Made { step, index: 0 }));
    }

    fn put(&mut self, step: Step) -> Operation {
        let object = self.object();
        self.made_by(step, &object);
        let digests = [Digested::Right, Digested::Right, Digested::Wrong, Digested::Malformed];
        let checksum = self.one_in(4).then(|| Announced {
            algorithm: self.chance.random_range(0..HEADERS.len()),
            value: self.pick(&[Digested::Right, Digested::Right, Digested::Right, Digested::Wrong]),
            in_trailer: self.one_in(2),
        });
        Operation::Put(Put {
            object,
            body: self.body(),
            description: self.description(),
            conditions: self.write_conditions(5),
            md5: self.maybe(8, &digests),
            checksum,
        })
    }

    fn read(&mut self) -> Read {
        let object = self.object();
        Read {
            version: self.version(&object),
            object,
            head: self.one_in(3),
            range: self.maybe(3, &RANGES),
            part: self.maybe(8, &[1, 2, 3, 0, 10_001]),
            conditions: self.read_conditions(3),
        }
    }

    fn delete(&mut self, step: Step) -> Operation {
        let object = self.object();
        let version = self.version(&object);
        if version == Version::Current {
            self.made_by(step, &object);
        }
        let matches = self.one_in(5).then(|| self.tag()).filter(|it| *it != Tag::List);
        Operation::Delete(Delete { object, version, matches, bypass: self.one_in(4) })
    }

    fn delete_many(&mut self, step: Step) -> Operation {
        let bucket = self.any_bucket();
        let quiet = self.one_in(2);
        let mut objects = Vec::new();
        let keys = self.keys.clone();
        let count = self.chance.random_range(0..4);
        // One key at most once: deletes of one request run at a time in any order.
        for key in keys.choose_multiple(&mut self.chance, count).cloned() {
            // A document of XML 1.0 can't hold every key.
            if key.contains(['\u{1}', '\u{ffff}']) {
                continue;
            }
            let object = Object { bucket, key: key.clone() };
            let version = self.version(&object);
            if version == Version::Current && !quiet {
                self.made.push((object, Made { step, index: objects.len() }));
            }
            objects.push((key, version));
        }
        let shapes = [Shape::TooMany, Shape::Malformed, Shape::Undigested];
        let shape = self.maybe(4, &shapes).unwrap_or(Shape::Good);
        Operation::DeleteMany(DeleteMany { bucket, objects, quiet, bypass: self.one_in(4), shape })
    }

    fn copy(&mut self, step: Step) -> Operation {
        let (source, mut object) = (self.object(), self.object());
        if self.one_in(4) {
            object = source.clone();
        }
        self.made_by(step, &object);
        Operation::Copy(Copy {
            version: self.version(&source),
            source,
            source_conditions: self.read_conditions(4),
            object,
            conditions: self.write_conditions(6),
            replace: self.one_in(3).then(|| Description { tags: None, ..self.description() }),
            tags: self.one_in(5).then(|| self.tags()),
        })
    }

    fn any_upload(&mut self) -> (Upload, Vec<i32>) {
        let nothing = Upload { begun: None, object: self.object() };
        let uploads = self.uploads.clone();
        if uploads.is_empty() || self.one_in(12) {
            return (nothing, Vec::new());
        }
        let (step, mut object, parts) = self.pick(&uploads);
        if self.one_in(20) {
            object = nothing.object;
        }
        (Upload { begun: Some(step), object }, parts)
    }

    fn of_upload(&mut self, step: Step) -> Operation {
        if self.uploads.is_empty() || self.one_in(8) {
            let object = self.object();
            self.uploads.push((step, object.clone(), Vec::new()));
            return Operation::CreateUpload { object, description: self.description() };
        }
        let (upload, parts) = self.any_upload();
        match self.chance.random_range(0..10) {
            0..4 => self.part(upload),
            4 | 5 => self.part_copy(upload),
            6 | 7 => self.complete(step, upload, parts),
            8 => Operation::Abort { upload },
            _ => Operation::ListParts {
                upload,
                marker: self.maybe(2, &[0, 1, 2, 10_000]),
                limit: self.maybe(2, &LIMITS).filter(|it| *it != "0"),
            },
        }
    }

    fn number(&mut self) -> i32 {
        self.pick(&[1, 1, 2, 2, 3, 7, 10_000, 0, 10_001, -1])
    }

    fn part_sent(&mut self, upload: &Upload, number: i32) {
        let known = self.uploads.iter_mut().find(|it| Some(it.0) == upload.begun);
        let known = known.filter(|it| !it.2.contains(&number) && (1..=10_000).contains(&number));
        if let Some((_, _, parts)) = known {
            parts.push(number);
            parts.sort_unstable();
        }
    }

    fn part(&mut self, upload: Upload) -> Operation {
        let (number, mut body) = (self.number(), self.body());
        if self.large > 0 && self.one_in(3) {
            self.large -= 1;
            body.length = PART;
        }
        let md5 = self.maybe(8, &[Digested::Right, Digested::Wrong, Digested::Malformed]);
        if md5.is_none() {
            self.part_sent(&upload, number);
        }
        Operation::UploadPart { upload, number, body, md5 }
    }

    fn part_copy(&mut self, upload: Upload) -> Operation {
        let (number, source) = (self.number(), self.object());
        let version = self.version(&source);
        self.part_sent(&upload, number);
        let range = self.maybe(2, &COPY_RANGES);
        Operation::CopyPart(CopyPart { upload, number, source, version, range })
    }

    fn complete(&mut self, step: Step, upload: Upload, parts: Vec<i32>) -> Operation {
        self.made_by(step, &upload.object);
        let mut parts: Vec<(i32, Tag)> = parts.into_iter().map(|it| (it, Tag::Right)).collect();
        match self.chance.random_range(0..10) {
            0 => parts.reverse(),
            1 => parts.push((9, Tag::Right)),
            2 => parts.truncate(1),
            3 => parts.first_mut().into_iter().for_each(|it| it.1 = Tag::Wrong),
            4 => parts.insert(0, (0, Tag::Right)),
            5 => parts.clear(),
            _ => {}
        }
        Operation::Complete { upload, parts, conditions: self.write_conditions(6) }
    }

    fn list(&mut self) -> List {
        let listed =
            self.pick(&[Listed::Objects, Listed::ObjectsV2, Listed::Versions, Listed::Uploads]);
        let delimiter = self.pick(&["", "", "/", "/", "//", "b", "é"]).to_owned();
        let markers = ["a", "a/b", "b", "zz", "é", "\u{10ffff}"];
        // A marker that a delimiter folds away is a position that S3 doesn't document.
        let marker = if delimiter.is_empty() { self.maybe(3, &markers) } else { None };
        let limit = self.maybe(2, &LIMITS);
        let is_paged = limit.is_some_and(|it| ["1", "2", "3"].contains(&it));
        List {
            bucket: self.any_bucket(),
            listed,
            prefix: self.pick(&["", "", "", "a", "a/", "a//", "é", ".", "zz", " "]).to_owned(),
            delimiter,
            marker: marker.map(str::to_owned),
            limit,
            encoding: self.maybe(2, &["url", "url", "url", "base64"]),
            pages: is_paged && self.one_in(2),
        }
    }

    fn of_version(&mut self) -> Operation {
        let object = self.object();
        let version = self.version(&object);
        let bypass = self.one_in(3);
        match self.chance.random_range(0..8) {
            0 | 1 => Operation::PutTags { object, version, tags: self.tags() },
            2 => Operation::GetTags { object, version },
            3 => Operation::DeleteTags { object, version },
            4 => {
                let retention = if self.one_in(5) { None } else { Some(self.retention()) };
                Operation::PutRetention { object, version, retention, bypass }
            }
            5 => Operation::GetRetention { object, version },
            6 => Operation::PutHold { object, version, on: self.one_in(2) },
            _ => Operation::GetHold { object, version },
        }
    }

    fn document(&mut self) -> Operation {
        if self.one_in(5) {
            let (bucket, variant) = (self.any_bucket(), self.chance.random_range(0..5));
            return if self.one_in(2) {
                Operation::PutLockConfiguration { bucket, variant }
            } else {
                Operation::GetLockConfiguration { bucket }
            };
        }
        let (bucket, kind) = (self.any_bucket(), self.chance.random_range(0..DOCUMENTS.len()));
        let variant = self.chance.random_range(0..DOCUMENTS[kind].variants.len());
        match self.chance.random_range(0..5) {
            0 | 1 => Operation::PutDocument { bucket, kind, variant },
            2 => Operation::DeleteDocument { bucket, kind },
            _ => Operation::GetDocument { bucket, kind },
        }
    }

    fn bucket(&mut self) -> Operation {
        let bucket = self.any_bucket();
        // `Absent` stays absent.
        let made = if bucket == Bucket::Absent { Bucket::Second } else { bucket };
        match self.chance.random_range(0..9) {
            0 => Operation::CreateBucket { bucket: made, lock: self.one_in(4) },
            1 => Operation::HeadBucket { bucket },
            2 => Operation::DeleteBucket { bucket },
            3 => Operation::GetVersioning { bucket },
            4 => {
                let (name, valid) = self.pick(&NAMES);
                Operation::CreateNamed { name, valid }
            }
            _ => {
                let status = self.pick(&["Enabled", "Enabled", "Suspended", "Suspended", "On", ""]);
                Operation::SetVersioning { bucket, status }
            }
        }
    }
}
